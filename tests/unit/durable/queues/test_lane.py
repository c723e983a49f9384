"""One lane against a list of messages; what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from durable.queues.journal import Journal
from durable.queues.lane import Lane
from durable.queues.runs import Records, Run
from tests.queues import arrivals_of, encoded, positions_of


@dataclass
class Message:
    run: Run
    state: str = "ready"  # or "out", "settled"
    returned: int = 0


@dataclass
class Model:
    """Message n is the n-th of the list; None stands in a gap."""

    messages: list[Message | None] = field(default_factory=list)

    def those(self, state: str) -> list[int]:
        return [at for at, one in enumerate(self.messages) if one and one.state == state]


class LaneMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.lane = Lane(9, self.journal, logged=True)
        self.model = Model()
        self.position = 0
        self.settled = set[int]()
        self.released = set[int]()

    @rule(gap=st.sampled_from([0, 0, 0, 2]), count=st.integers(1, 6), size=st.integers(0, 40))
    def enqueue(self, gap: int, count: int, size: int) -> None:
        messages, self.position = self.model.messages, self.position + 1
        messages += [None] * gap
        run = Run(len(messages), count, self.position, size)
        messages += [Message(run) for _ in range(count)]
        self.lane.enqueue(*run, time_us=0)

    @rule(
        gap=st.sampled_from([0, 0, 2]),
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=9),
        size=st.integers(0, 9),
    )
    def enqueue_all(self, gap: int, counts: list[int], size: int) -> None:
        messages, runs = self.model.messages, list[Run]()
        messages += [None] * gap
        for count in counts:
            self.position += 1
            run = Run(len(messages), count, self.position, size)
            messages += [Message(run) for _ in range(count)]
            runs.append(run)
        self.lane.enqueue_all(arrivals_of(runs))

    @rule(count=st.integers(1, 8), size=st.integers(0, 50))
    def take(self, count: int, size: int) -> None:
        got, ready = self.lane.take(count, size), self.model.those("ready")
        if not ready:
            assert got is None
            return
        first = self.model.messages[ready[0]]
        assert first is not None
        taken = list[int]()
        for at in ready:
            message, whole = self.model.messages[at], first.run.size_of(ready[0], at + 1)
            if (
                at != ready[0] + len(taken) or len(taken) == count or message is None
                or (message.run, message.returned) != (first.run, first.returned)
                or (taken and whole > size)
            ):  # fmt: skip
                break
            taken.append(at)
        assert got is not None
        assert (got.run, got.first, got.count) == (first.run, taken[0], len(taken))
        assert got.returned == first.returned
        assert got.size_bytes == first.run.size_of(taken[0], taken[-1] + 1)
        self.change(taken, "out")

    def change(self, those: list[int], state: str) -> None:
        for at in those:
            message = self.model.messages[at]
            assert message is not None
            message.state = state

    @precondition(lambda self: self.model.those("out"))
    @rule(data=st.data(), counted=st.booleans())
    def requeue(self, data: st.DataObject, counted: bool) -> None:
        out = self.model.those("out")
        some = sorted(data.draw(st.sets(st.sampled_from(out), min_size=1)))
        starts = [at for at in some if at - 1 not in some or data.draw(st.booleans())]
        ends = [max(at for at in some if at < after) + 1 for after in [*starts[1:], some[-1] + 1]]
        self.lane.requeue(list(zip(starts, ends, strict=True)), counted=counted)
        self.change(some, "ready")
        for at in some:
            message = self.model.messages[at]
            assert message is not None
            message.returned += counted

    @rule(start=st.integers(0, 40), count=st.integers(0, 12))
    def settle(self, start: int, count: int) -> None:
        """Whatever state they are in, as long as they are there."""
        end = min(start + count, len(self.model.messages))
        fresh = [
            at
            for at, message in enumerate(self.model.messages[:end])
            if at >= start and message and message.state != "settled"
        ]
        assert self.lane.settle(start, end) == len(fresh)
        self.change(fresh, "settled")
        self.settled.update(fresh)

    @rule()
    def restart(self) -> None:
        """From a checkpoint: what was out is ready, all else is as it was."""
        self.collect()
        enqueued, settled = encoded(self.lane)
        self.lane = Lane(9, self.journal, logged=True)
        self.lane.load(enqueued, settled)
        self.change(self.model.those("out"), "ready")

    def collect(self) -> None:
        settled, _ = self.journal.take_settled()
        written = [at for span in settled.get(9, []) for at in range(*span)]
        assert len(written) == len(set(written))
        assert set(written) == self.settled, "each settlement is written once"
        self.settled.clear()
        released = positions_of(self.journal.take_released())
        assert self.released.isdisjoint(released)
        assert len(released) == len(set(released)), "each run is released once"
        self.released.update(released)

    @invariant()
    def agrees(self) -> None:
        lane, ready = self.lane, self.model.those("ready")
        assert lane.ready == len(ready)
        assert [at for span in lane.ready_ranges() for at in range(*span)] == ready
        sizes = {
            at: one.run.size_of(at, at + 1) for at, one in enumerate(self.model.messages) if one
        }
        assert lane.ready_bytes == sum(sizes[at] for at in ready)
        alive = ready + self.model.those("out")
        assert lane.size_bytes == sum(sizes[at] for at in alive)
        assert lane.next == len(self.model.messages)
        assert (lane.oldest_us() is None) == (not alive)
        messages = [self.model.messages[at] for at in alive]
        needed = {one.run.position for one in messages if one}
        assert sorted(positions_of(lane.referenced())) == sorted(needed)
        self.collect()
        assert self.released == set(range(1, self.position + 1)) - needed


TestLane = LaneMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.integers(0, 6)), max_size=6))
def test_settlements_may_be_known_before_their_messages(known: list[tuple[int, int, int]]) -> None:
    """Recovery in whatever order, settlements before or after runs: the same lane in the end."""
    journal = Journal()
    lane = Lane(1, journal, logged=True)
    for at in range(7):
        for when, start, count in known:
            if when == at:
                lane.settle(start, start + count, recorded=True)
        if at < 6:
            lane.enqueue(3 * at, 3, at, 9, 0)
    gone = {at for _, start, count in known for at in range(start, start + count)}
    ready = [at for at in range(18) if at not in gone]
    assert [at for span in lane.ready_ranges() for at in range(*span)] == ready
    size = 3 * len(ready)
    assert (lane.ready, lane.ready_bytes, lane.size_bytes) == (len(ready), size, size)
    assert not journal.settled
    released = positions_of(journal.released)
    assert sorted(released) == [at for at in range(6) if gone >= {3 * at, 3 * at + 1, 3 * at + 2}]
    assert lane.next == max([18, *(one + 1 for one in gone)])


def test_a_returned_message_is_counted_and_written_down() -> None:
    journal = Journal()
    lane = Lane(3, journal, logged=True)
    lane.enqueue(0, 4, 0, 40, 0)
    lane.take()
    lane.requeue([(1, 3)], counted=True)
    got = lane.take()
    assert got is not None
    assert (got.first, got.count, got.returned) == (1, 2, 1)
    assert journal.returned == {3: [(1, 3)]}
    lane.requeue([(1, 2)], counted=False)
    assert journal.returned == {3: [(1, 3)]}
    assert list(lane.returns_between(0, 4)) == [(0, 1, 0), (1, 3, 1), (3, 4, 0)]
    lane.settle(2, 4)
    assert list(lane.returns_between(0, 4)) == [(0, 1, 0), (1, 2, 1), (2, 4, 0)], (
        "forgotten with it"
    )


def test_what_is_settled_meanwhile_does_not_come_back() -> None:
    """A record that is found damaged settles its messages, wherever they are."""
    journal = Journal()
    lane = Lane(3, journal, logged=True)
    lane.enqueue(0, 4, 0, 40, 0)
    lane.take(3)
    lane.settle(1, 2)
    lane.requeue([(0, 3)], counted=True)
    assert lane.ready_ranges() == [(0, 1), (2, 4)]
    assert (lane.ready, lane.ready_bytes) == (3, 30)
    assert journal.returned == {3: [(0, 1), (2, 3)]}


def test_what_came_back_in_parts_is_one_slice_again() -> None:
    lane = Lane(3, Journal(), logged=True)
    lane.enqueue(0, 4, 0, 40, 0)
    lane.take(3)
    lane.requeue([(1, 2)], counted=False)
    lane.requeue([(2, 3)], counted=False)
    got = lane.take()
    assert got is not None
    assert (got.first, got.count) == (1, 3)


def test_a_lane_that_is_not_logged_writes_nothing_but_releases() -> None:
    journal = Journal()
    lane = Lane(3, journal, logged=False)
    lane.enqueue(0, 4, 77, 40, 0)
    lane.take(2)
    lane.requeue([(0, 2)], counted=True)
    lane.settle(0, 4)
    assert not journal.settled
    assert not journal.returned
    assert positions_of(journal.released) == [77]


def test_ten_million_messages_settled_at_once_are_one_range() -> None:
    journal = Journal()
    lane = Lane(3, journal, logged=True)
    for at in range(10_000):
        lane.enqueue(at, 1, 2 * at, 16, at)
    assert lane.settle(0, 10_000) == 10_000
    assert journal.settled == {3: [(0, 10_000)]}
    assert journal.released == [Records(range(0, 20_000, 2), 1, 16)]
    assert lane.ready == lane.ready_bytes == lane.size_bytes == 0


def test_one_message_that_nobody_settles_keeps_nothing_of_what_is_settled_behind_it() -> None:
    """Found: of single messages the place of each was kept, and written down with each checkpoint."""
    lane = Lane(9, Journal(), logged=True)
    lane.enqueue(0, 1, 1, 100, time_us=0)
    for begin in range(1, 60_001, 10_000):
        for first in range(begin, begin + 10_000):
            lane.enqueue(first, 1, first * 2 + first % 3, 100 + first * 7919 % 1000, time_us=0)
        lane.take()
        lane.settle(begin, begin + 10_000)
        lane.encode()
        assert len(lane.index._blocks) == 1, "the one with the message that stays"
    assert lane.index.find(0) == Run(0, 1, 1, 100)
    assert lane.index.find(10_000) is None
    loaded = Lane(9, Journal(), logged=True)
    loaded.load(*encoded(lane))
    assert loaded.ready_ranges() == [(0, 1)]
    assert (loaded.index.end, loaded.size_bytes) == (60_001, 100)
    loaded.take()
    loaded.settle(0, 1)
    assert not loaded.index


def test_runs_expire_at_the_head_by_their_own_time_or_by_age() -> None:
    lane = Lane(3, Journal(), logged=True)
    lane.enqueue(0, 2, 0, 8, time_us=1_000, expires_us=500_000)
    lane.enqueue(2, 2, 1, 8, time_us=200_000)
    lane.enqueue(4, 2, 2, 8, time_us=400_000, expires_us=100_000)
    assert list(lane.expire(300_999, 300_000)) == []
    assert list(lane.expire(301_000, 300_000)) == [(0, 2)]
    assert list(lane.expire(500_000, 300_000)) == [(2, 4), (4, 6)]
    assert (lane.ready, lane.ready_bytes, lane.size_bytes) == (0, 0, 24)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0" * 3, b"\xff" * 40])
def test_impossible_bytes_leave_the_lane_as_it_was(data: bytes) -> None:
    good, lane = encoded(Lane(1, Journal(), logged=True)), Lane(1, Journal(), logged=True)
    for enqueued, settled in ((data, good[1]), (good[0], data)):
        with pytest.raises(ValueError, match="bytes"):
            lane.load(enqueued, settled)
        assert (lane.ready, lane.next) == (0, 0)


def test_a_run_with_two_holes_is_referred_to_once() -> None:
    lane = Lane(3, Journal(), logged=True)
    lane.enqueue(0, 5, 77, 40, 0)
    lane.settle(1, 2)
    lane.settle(3, 4)
    assert positions_of(lane.referenced()) == [77]


def test_what_is_recalled_before_the_messages_holds_for_them() -> None:
    """What became of them says one file, what they were the log, and neither needs the other."""
    lane = Lane(1, Journal(), logged=True)
    for number in range(4):
        lane.enqueue(3 * number, 3, number, 30, 0)
        lane.take()
    for start, end in ((0, 5), (7, 8)):
        lane.settle(start, end)
    lane.requeue([(5, 7)], counted=True)
    _, settled = lane.encode()
    again = Lane(1, Journal(), logged=True)
    with pytest.raises(ValueError, match="parts"):
        again.load_settled(settled[:-1])
    again.load_settled(settled)
    for number in range(4):
        again.enqueue(3 * number, 3, number, 30, 0)
    again.end_recovery(0)
    assert again.ready_ranges() == [(5, 7), (8, 12)]
    assert (
        list(again.returns_between(5, 12))
        == list(lane.returns_between(5, 12))
        == [(5, 7, 1), (7, 12, 0)]
    )
    assert again.index.start == lane.index.start == 3, "and what is settled is not kept"
    assert positions_of(again.referenced()) == [1, 2, 3]


def test_returns_that_are_told_in_part_leave_the_rest_as_it_was() -> None:
    lanes = [Lane(1, Journal(), logged=True) for _ in range(2)]
    for lane in lanes:
        lane.enqueue(0, 10, 1, 100, time_us=0)
    first, second = lanes
    for at in (1, 3, 5):
        first.add_returns([(at, at + 1)])
    told, end = first.returns(2)
    assert (told, end) == ([(1, 2, 1), (3, 4, 1)], 4)
    second.add_returns([(2, 9)])
    second.settle(3, 4)
    second.load_returns(told, end)
    assert list(second.returns_between(0, 10)) == [
        (0, 1, 0),
        (1, 2, 1),
        (2, 4, 0),
        (4, 9, 1),
        (9, 10, 0),
    ]
    told, end = first.returns(3)
    second.load_returns(told, end)
    assert list(second.returns_between(4, 10)) == [(4, 5, 0), (5, 6, 1), (6, 10, 0)]


YEAR_US = 365 * 86_400 * 1_000_000


@pytest.mark.parametrize("reloaded", [False, True])
def test_what_came_by_a_clock_that_was_ahead_is_as_old_as_the_start(reloaded: bool) -> None:
    """Found: it stayed for a year, and with it all that came behind."""
    lane = Lane(9, Journal(), logged=True)
    lane.enqueue(0, 2, 1, 20, time_us=YEAR_US)
    lane.enqueue(2, 2, 2, 20, YEAR_US + 50, YEAR_US + 50 + 100)
    if reloaded:
        parts, lane = encoded(lane), Lane(9, Journal(), logged=True)
        lane.load(*parts)
    lane.end_recovery(1000)
    lane.enqueue(4, 1, 3, 10, time_us=1500)
    assert list(lane.expire(1099, 100)) == []
    assert lane.first_younger(999) == 0
    assert lane.first_younger(1000) == 4
    assert lane.first_later(1500)[0] == 0, "as it is written down, for who looks for a time"
    assert list(lane.expire(1100, 100)) == [(0, 4)]
    assert list(lane.expire(1599, 100)) == []
    assert list(lane.expire(1600, 100)) == [(4, 5)]


def test_so_is_what_has_a_time_of_its_own_to_expire_at() -> None:
    lane = Lane(9, Journal(), logged=True)
    lane.enqueue(0, 1, 1, 10, YEAR_US, YEAR_US + 100)
    lane.enqueue(1, 1, 2, 10, 900, 900 + 300)
    lane.end_recovery(1000)
    lane.enqueue(2, 1, 3, 10, 1000, 1000 + 400)
    assert list(lane.expire(1099, None)) == []
    assert list(lane.expire(1100, None)) == [(0, 1)]
    assert list(lane.expire(1199, None)) == []
    assert list(lane.expire(1200, None)) == [(1, 2)]
    assert list(lane.expire(1400, None)) == [(2, 3)]


def test_what_expires_at_the_same_time_by_the_clock_is_told_apart_at_a_start() -> None:
    """Found: what had come since went with what had come by a clock that was ahead."""
    lane = Lane(9, Journal(), logged=True)
    lane.enqueue(0, 1, 1, 4, time_us=1_000_000, expires_us=1_480_000)
    lane.enqueue(1, 1, 2, 4, time_us=1_200_000, expires_us=1_480_000)
    lane.end_recovery(520_000)
    lane.enqueue(2, 1, 3, 4, time_us=1_000_000, expires_us=1_480_000)
    assert list(lane.expire(999_999, None)) == []
    assert list(lane.expire(1_000_000, None)) == [(0, 1), (1, 2)]
    assert list(lane.expire(1_479_999, None)) == []
    assert list(lane.expire(1_480_000, None)) == [(2, 3)]
