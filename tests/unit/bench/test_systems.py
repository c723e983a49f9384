"""Every system, small: it runs, and nothing is lost. How fast is not asked here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.comparison import latency, throughput
from bench.latency.workloads import Workload
from bench.machine import ROOT
from bench.plan import Scale
from bench.systems import SYSTEMS
from bench.systems.stored import ONE_AT_A_TIME, StoredSystem
from bench.systems.system import System
from tests.servers import Servers

TINY, TINY_EACH = 3000, 300
"""Messages; of those that wait for a sync each, fewer."""
SECONDS_MAX = 3.0
"""Of a stream; it is warmed up for a third of that, or as long as its server needs."""
FEW = Workload(name="few", size_bytes=100, rate_per_s=200, connections=2)

EVERY_SYSTEM = pytest.mark.parametrize("system", SYSTEMS.values(), ids=list(SYSTEMS))


@pytest.mark.slow
@EVERY_SYSTEM
def test_a_stream_arrives_whole_and_in_order(system: System, servers: Servers) -> None:
    skip_if_missing(system)
    if not system.throughput:
        pytest.skip("it is not measured at full throttle")
    count = TINY_EACH if system.promise == "fsync each" else TINY
    with servers.of(system) as (troupe, serve):
        outcome = throughput.case(system, 100, count, SECONDS_MAX, serve).run(troupe, Scale())
    assert outcome.wrong == 0
    assert outcome.values["per_s"] > 0


@pytest.mark.slow
@EVERY_SYSTEM
def test_every_request_is_answered_once(system: System, servers: Servers, tmp_path: Path) -> None:
    skip_if_missing(system)
    if not system.latency:
        pytest.skip("it is not measured under an open load")
    with servers.of(system) as (troupe, serve):
        case = latency.case(system, FEW, latency.Lasting(1.0, 1.0, 1), tmp_path, serve)
        outcome = case.run(troupe, Scale(quick=True))
    assert outcome.wrong == 0
    assert outcome.values["p50_us"] > 0


def test_a_sync_for_each_is_promised_by_those_whose_names_say_so() -> None:
    """And by nobody else; ours is among them, so that there is somebody to be compared with."""
    each = {name for name, system in SYSTEMS.items() if system.promise == "fsync each"}
    assert each == {name for name in SYSTEMS if name.endswith(ONE_AT_A_TIME)}
    assert "mesh-durable-each" in each
    assert not [name for name in each if SYSTEMS[name].latency]


def test_what_stores_has_a_floor_of_the_same_promise_beside_it() -> None:
    """In every mode: a floor that syncs many at once says nothing of a client that syncs each."""
    stores = {name: one for name, one in SYSTEMS.items() if isinstance(one, StoredSystem)}
    peers = [name for name, one in stores.items() if not one.floor and not name.startswith("mesh")]
    for name in peers:
        peer = stores[name]
        floor = stores[name.removesuffix(ONE_AT_A_TIME) + "-raw" + ONE_AT_A_TIME * peer.each]
        assert floor.floor
        assert (floor.promise, floor.latency) == (peer.promise, peer.latency)
        assert floor.probe_count == peer.probe_count
    assert len(stores) - len(peers) == len(peers) + 2, "a floor for each, and ours"


def test_the_long_loads_are_of_all_of_ours_and_of_clients_that_there_are() -> None:
    """And of no floor: they take most of an hour as it is."""
    (line,) = re.findall(
        r"^SUSTAINED_SYSTEMS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    named = line.split(",")
    assert set(named) <= SYSTEMS.keys()
    assert {name for name in SYSTEMS if name.startswith("mesh")} <= set(named)
    assert not [name for name in named if SYSTEMS[name].floor]


def skip_if_missing(system: System) -> None:
    if why := system.missing():
        pytest.skip(why)
