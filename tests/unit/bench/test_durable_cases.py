"""Every kind of durable case, small: it runs, and nothing is lost. How fast is not asked here."""

from __future__ import annotations

import pytest

from bench.durable import latency, memory, peers, streaming
from bench.durable.peers import PEERS
from bench.plan import Case, Scale
from bench.processes import Troupe
from bench.systems import SYSTEMS
from tests.moments import Moments
from tests.servers import Servers

TINY = 2000

CASES = [
    streaming.confirmed("one queue", 100, TINY),
    streaming.confirmed("lists", 100, TINY, way="send_many"),
    streaming.confirmed("in turn", 100, TINY, queues=10),
    streaming.confirmed("in a row", 100, TINY, queues=10, in_row=10),
    streaming.filled_then_drained("filled", 100, TINY),
    streaming.filled_then_drained("filled in turn", 100, TINY, queues=10),
    latency.one_at_a_time("one at a time", 1),
    memory.ready_messages("ready", TINY, starts=1),
    memory.ready_messages("alone", TINY, way="alone", starts=1),
    memory.ready_messages("unlike", TINY, way="unlike", starts=1),
    memory.declared_queues("declared", 20),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nothing_is_lost(case: Case) -> None:
    with Troupe() as troupe:
        outcome = case.run(troupe, Moments())
    assert outcome.wrong == 0
    assert all(value > 0 for name, value in outcome.values.items() if "rss" not in name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_installed_loses_nothing(name: str, servers: Servers) -> None:
    """The second size finds nothing of the first one: all of that was acked."""
    system = SYSTEMS[PEERS[name]]
    if why := system.missing():
        pytest.skip(why)
    sizes = {"100 B": 100, "1 KB": 1024}
    with servers.of(system) as (troupe, serve):
        outcome = peers.confirmed(name, sizes, 700, serve).run(troupe, Scale())
    assert outcome.wrong == 0
    assert all(outcome.values[f"per_s {size}"] > 0 for size in sizes)


def test_every_peer_stores_and_is_told_of_at_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    for system in PEERS.values():
        monkeypatch.setattr(type(SYSTEMS[system]), "missing", lambda _: None)
    promises = [peers.CONFIRM_SAYS[SYSTEMS[system].promise] for system in PEERS.values()]
    assert peers.notes() == [
        f"{name}: a confirm says {says}" for name, says in zip(PEERS, promises, strict=True)
    ]
    cases, rows = peers.beside_peers({"100 B": "ours"}, {"100 B": 100})
    assert [case.name for case in cases] == list(PEERS)
    assert [row.name for row in rows] == [
        f"confirmed, 1 queue, 100 B, beside {name}" for name in PEERS
    ]


def test_a_peer_that_is_not_installed_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for system in PEERS.values():
        monkeypatch.setattr(type(SYSTEMS[system]), "missing", lambda _: "no server")
    assert peers.beside_peers({"100 B": "ours"}, {"100 B": 100}) == ([], [])
    assert peers.notes() == [f"{name} is skipped: no server" for name in PEERS]


def test_each_queue_has_a_ring_that_closes() -> None:
    for queues, in_row in ((1, 1), (100, 1), (100, 100)):
        assert streaming.ring_count(queues, in_row) % (queues * in_row) == 0


def test_the_floor_of_a_confirm_is_a_round_trip_and_a_sync() -> None:
    values = latency.percentiles({"confirm": [9_000], "round_trip": [3_000], "sync": [4_000]})
    assert values["floor_p50_us"] == values["floor_p99_us"] == 7.0
    assert values["confirm_p50_us"] == 9.0
