"""The open load against a system whose delays are known: what it reports must be those."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.comparison import latency
from bench.latency.distribution import Distribution, arrays
from bench.latency.generator import TURN, Run, connected, generate
from bench.latency.samples import Samples
from bench.latency.schedule import NS, Schedule
from bench.latency.workloads import WORKLOADS, Workload
from bench.plan import Scale
from bench.systems.system import Received
from tests.fake_system import FakeRequester, VirtualLoop

MS = 1_000_000
RATE_PER_S, COUNT = 1000, 10_000
REST = b"the rest of every payload"


def delay_ns(number: int) -> int:
    """1 ms for most, 5 ms for one in a hundred, 20 ms for one in a thousand."""
    if number % 1000 == 7:
        return 20 * MS
    return 5 * MS if number % 100 == 3 else 1 * MS


class Turns(VirtualLoop):
    """Notes how many requests leave between one look for replies and the next."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = [0]

    def at(self, due_ns: int, event: Callable[[], None]) -> None:
        self.sent[-1] += 1
        super().at(due_ns, event)

    async def until(self, due_ns: int) -> None:
        self.sent.append(0)
        await super().until(due_ns)


class Blocking(VirtualLoop):
    """Sending a request that takes 20 ms does not return for 20 s."""

    def at(self, due_ns: int, event: Callable[[], None]) -> None:
        super().at(due_ns, event)
        if due_ns - self.now_ns == 20 * MS:
            self.now_ns += 20 * NS


def run(
    *, count: int = COUNT, stall_ms: tuple[int, int] = (0, 0), cost_ns: int = 0,
    answers: Callable[[int], int] = lambda _: 1, connections: int = 1, loop: VirtualLoop | None = None,
) -> Run:  # fmt: skip
    loop = loop or VirtualLoop()
    start_ns = loop.clock()
    start, end = stall_ms
    stall = (start_ns + start * MS, start_ns + end * MS)

    def connect(number: int, replied: Received) -> FakeRequester:
        return FakeRequester(
            loop, replied, delay_ns, stall_ns=stall, cost_ns=cost_ns, answers=answers
        )

    samples = Samples(count, REST)

    async def main() -> Run:
        async with connected(samples, connections, connect, loop.clock) as requesters:
            return await generate(RATE_PER_S, loop, requesters, samples, loop.clock)

    return loop.run(main)


def quantiles(found: Run) -> tuple[Distribution, Distribution, Distribution]:
    rows = arrays(found, 0)
    kinds = ("response", "uncorrected", "delay")
    response, uncorrected, delay = (Distribution.of(rows[kind]) for kind in kinds)
    return response, uncorrected, delay


def test_known_delays_come_out_as_they_are() -> None:
    found = run()
    assert found.samples.wrong == 0
    response, _, delay = quantiles(found)
    # Nothing here costs time, so every request leaves the moment it is due.
    assert delay.max_ns == 0
    expected = np.sort(np.array([delay_ns(number) for number in range(COUNT)]))
    assert (response.sorted_ns == expected).all()
    assert [response.at(share) // MS for share in (0.5, 0.99, 0.9995)] == [1, 5, 20]


def test_a_stall_makes_all_that_was_due_meanwhile_late_and_is_one_sample_uncorrected() -> None:
    """100 ms at 1,000/s: 100 requests of 10,000, the first of them 100 ms late, the last about none."""
    response, uncorrected, _ = quantiles(run(stall_ms=(2000, 2100)))
    late = response.sorted_ns[response.sorted_ns > 20 * MS]
    assert 78 <= len(late) <= 81
    assert late[-1] == pytest.approx(100 * MS, abs=2 * MS)
    assert response.at(0.995) == pytest.approx(50 * MS, abs=5 * MS)
    # Who waits for each reply has one request under way when it stalls: one late sample.
    assert (uncorrected.sorted_ns > 20 * MS).sum() == 1
    assert uncorrected.at(0.995) <= 5 * MS


def test_a_load_that_is_held_up_shows_it_corrected_and_hides_it_uncorrected() -> None:
    """Each send takes 2 ms at 1,000/s: half of the schedule cannot be kept."""
    found = run(count=1000, cost_ns=2 * MS)
    response, uncorrected, delay = quantiles(found)
    assert delay.max_ns > 900 * MS
    assert response.max_ns > 900 * MS
    assert uncorrected.max_ns < 100 * MS
    assert found.kept == pytest.approx(0.5, abs=0.01)


def test_a_load_that_falls_far_behind_ends_with_what_it_has() -> None:
    """100 ms a request at 1,000/s: 5 s after the last was due it gives up."""
    found = run(count=1000, cost_ns=100 * MS)
    assert 55 <= found.samples.sent <= 70
    assert found.kept < 0.07
    assert found.samples.lost == 0
    assert len(arrays(found, 0)["response"]) == found.samples.sent


def test_a_sender_that_is_blocked_until_the_load_is_given_up_has_not_kept_its_schedule() -> None:
    """Found: half of the requests never left, the other half in time, so that it was told as kept."""
    found = run(count=2000, loop=Blocking())
    assert found.samples.sent == 8
    assert found.sent_per_s == pytest.approx(RATE_PER_S)
    assert found.kept == 8 / 2000


@pytest.mark.parametrize("connections", [1, 5])
def test_a_late_load_sends_so_many_on_each_connection_before_it_looks_for_replies(
    connections: int,
) -> None:
    """Found: 16 over 25 connections, so none had two to send together however late the load was."""
    loop = Turns()
    run(count=1000, cost_ns=2 * MS, connections=connections, loop=loop)
    assert max(loop.sent) == TURN * connections


def test_lost_replies_count_as_lost_and_as_long_as_the_run() -> None:
    found = run(answers=lambda number: 0 if number % 500 == 0 else 1)
    assert found.samples.lost == COUNT // 500
    assert found.samples.wrong == COUNT // 500
    response, _, _ = quantiles(found)
    assert response.max_ns == found.end_ns - found.schedule.start_ns


def test_duplicated_and_damaged_replies_are_counted() -> None:
    answers = {10: 2, 20: 3, 30: -1}
    found = run(answers=lambda number: answers.get(number, 1))
    samples = found.samples
    assert (samples.duplicated, samples.damaged, samples.lost) == (3, 1, 1)


def test_requests_of_the_warm_up_are_not_counted() -> None:
    found = run(count=1000)
    assert len(arrays(found, 400)["response"]) == 600


def test_due_times_do_not_drift() -> None:
    schedule = Schedule(start_ns=5, rate_per_s=3, count=100)
    assert [schedule.due_ns(number) for number in (0, 1, 3, 99)] == [
        5, 5 + NS // 3, 5 + NS, 5 + 33 * NS,
    ]  # fmt: skip
    for number in range(100):
        assert schedule.due_count(schedule.due_ns(number)) == number + 1
        assert schedule.due_count(schedule.due_ns(number) - 1) == number
    assert schedule.due_count(1000 * NS) == 100


@pytest.mark.parametrize(
    ("sent", "kept", "late_ms", "as_asked"),
    [(100, 1.0, 0, True), (99, 1.0, 0, False), (100, 0.98, 0, False), (100, 1.0, 11, False)],
)
def test_a_load_is_as_asked_if_all_of_it_left_at_its_rate_and_in_time(
    sent: int, kept: float, late_ms: int, as_asked: bool
) -> None:
    answer = {"asked": 100, "kept": kept}
    assert latency.as_asked(sent, answer, late_ms * 1_000_000) is as_asked


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda one: one.name)
def test_as_many_samples_as_were_asked_for(workload: Workload) -> None:
    """Found: one fewer, of numbers that a float of seconds does not hold."""
    for samples in (1, 27, 29, 1001, 10_000_000):
        assert latency.Lasting(0.01, 1.0, samples).counts(workload, Scale())[0] >= samples
    seconds = latency.Lasting(30.0, 3.0, 1)
    assert seconds.counts(workload, Scale()) == (30 * workload.rate_per_s, 3 * workload.rate_per_s)
