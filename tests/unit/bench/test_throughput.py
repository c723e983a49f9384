"""Full throttle: how many messages, and how long the bench waits for them. Roles are stood in for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from bench.comparison.throughput import stream
from bench.plan import Outcome
from bench.processes import ANSWER_S_MAX, Troupe
from bench.roles.stage import Order
from bench.roles.system_producer import act
from bench.sequence import Ring
from bench.stream import measure_stream
from bench.systems import SYSTEMS
from bench.systems.system import Place
from bench.usage import Usage

PER_S = 10_000
NS = 1_000_000_000


class Client:
    """Takes as long as PER_S messages a second take, and loses `lost` of them."""

    def __init__(self, lost: int = 0) -> None:
        self._lost = lost
        self.counts, self.waits_s = list[int](), list[float]()
        self._running = False

    def tell(self, do: str, **how: int) -> None:
        self._running = do == "run"
        if self._running:
            self.counts.append(how["count"])

    def hear(self, timeout_s: float = 0.0, beside: Any = ()) -> dict[str, Any]:
        if not self._running:
            return {"heard": 1}
        self.waits_s.append(timeout_s)
        end_ns = self.counts[-1] * NS // PER_S
        return {"start_ns": 0, "end_ns": end_ns, "reports": [{"lost": self._lost}]}


class Ends:
    """Both ends, whose orders are the same."""

    system = SYSTEMS["zeromq"]

    def __init__(self, lost: int) -> None:
        self.clients = {"consumer": Client(lost), "producer": Client(lost)}

    def start(self, role: str, **_: Any) -> Client:
        return self.clients[role]

    def end(self, *_: Client) -> None: ...


class Spending:
    """A second more each time."""

    def __init__(self) -> None:
        self._cpu_s = 0.0

    def usage(self) -> dict[str, Usage]:
        self._cpu_s += 1.0
        return {name: Usage(self._cpu_s, 1, 30_000_000) for name in ("one", "other")}


def measured(count: int, seconds_max: float, lost: int = 0) -> tuple[Outcome, Client]:
    place = Ends(lost)
    outcome = stream(
        cast("Troupe", Spending()), cast("Any", place), 100, count, seconds_max, seconds_max / 2
    )
    return outcome, place.clients["producer"]


@pytest.mark.parametrize(
    ("count", "seconds_max", "sent"),
    [(50_000, 20.0, 50_000), (1_000_000, 20.0, 200_000), (100, 20.0, 100), (5000, 0.01, 2000)],
)
def test_so_many_as_were_asked_for_or_as_the_time_allows(
    count: int, seconds_max: float, sent: int
) -> None:
    """Found: 2,000, where fewer were asked for. So many are sent however slow they are."""
    outcome, producer = measured(count, seconds_max)
    assert outcome.detail["count"] == producer.counts[-1] == sent
    assert outcome.values["per_s"] == PER_S


def test_cpu_and_memory_are_of_all_processes_and_losses_are_told() -> None:
    outcome, _ = measured(50_000, 20.0, lost=7)
    assert outcome.values["cpu_s_per_million"] == 2 / 50_000 * 1e6
    assert outcome.detail["cpu_s"] == {"one": 1.0, "other": 1.0}
    assert outcome.values["peak_mb"] == 60
    assert outcome.wrong == 7


def test_a_run_may_take_as_long_as_was_asked_for() -> None:
    """Found: one of more than three minutes was given up after three, each time."""
    _, producer = measured(10**9, 1000.0)
    probe_s, warm_s, run_s = producer.waits_s
    assert probe_s == ANSWER_S_MAX
    assert warm_s >= 500 + ANSWER_S_MAX
    assert run_s >= 1000 + ANSWER_S_MAX


class Producing:
    """A system's producer and loop, and the stage of its role: one order, of so many messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did = list[str]()
        cut = Ring.slice

        def noted(ring: Ring, start: int, count: int) -> list[bytes]:
            self.did.append("cut")
            return cut(ring, start, count)

        monkeypatch.setattr(Ring, "slice", noted)
        self.sent = list[bytes]()

    def producer(self, *_: Any) -> Producing:
        return self

    async def publish(self, payloads: list[bytes]) -> None:
        self.did.append("publish")
        self.sent += payloads

    async def nothing(self) -> None: ...

    setup = flush = teardown = nothing

    async def orders_beside(self, _: Any) -> AsyncIterator[Order]:
        yield {"do": "run", "start": 7, "count": 1200}

    def ready(self) -> None: ...

    def done(self, **_: int) -> None: ...


async def test_what_is_published_is_no_memory_before_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: 8 bytes a message, told as the system's memory: 24 MB of 45, of three million."""
    both: Any = Producing(monkeypatch)
    await act(both, both, Place(ports=[], secret="", size_bytes=100, directory=""), both)
    assert both.did == ["cut", "publish"] * 3
    assert both.sent == Ring(100).payloads[7:1207]


def test_no_warm_up_is_none() -> None:
    """Found: of fewer than ten messages it was none, which the receiver waited five seconds for."""
    client: Any = Client()
    measure_stream(cast("Troupe", Spending()), client, [client], size_bytes=1, count=9)
    assert set(client.counts) == {9}
