"""When messages came: what a mark may be wrong by."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.queues.arrival_times import MARKS_MAX, STEP_US, ArrivalTimes


def latest_us(known: ArrivalTimes, sequence: int) -> int:
    """The message came then or earlier: the first time it does not come after."""
    end = sequence + 1
    return bisect_left(
        range(1 << 40), end, key=lambda time_us: known.first_after(time_us, sequence, end)
    )


@given(st.lists(st.integers(0, 120_000), min_size=1, max_size=40), st.integers(0, 3_000_000))
def test_times_are_right_within_a_step(pauses_us: list[int], when_us: int) -> None:
    known, times, now = ArrivalTimes(), list[int](), 1_000
    for sequence, pause in enumerate(pauses_us):
        times.append(now := now + pause)
        known.note(sequence, now)
    for sequence, time_us in enumerate(times):
        assert time_us - STEP_US < known.earliest_us(sequence) <= time_us
        assert time_us <= latest_us(known, sequence) < time_us + STEP_US
    later = known.first_after(when_us, 0, len(times))
    assert all(time_us <= when_us for time_us in times[:later]), "never too old"
    assert all(time_us > when_us - STEP_US for time_us in times[later:]), "not much too young"
    copy = ArrivalTimes.decode(known.encode())
    assert copy.encode() == known.encode()


@given(st.lists(st.integers(-60_000, 120_000), min_size=1, max_size=60), st.booleans(), st.data())
def test_times_that_come_together_are_noted_as_one_by_one(
    pauses_us: list[int], rising: bool, data: st.DataObject
) -> None:
    each, together = ArrivalTimes(), ArrivalTimes()
    times = [*accumulate(map(abs, pauses_us) if rising else pauses_us, initial=10_000_000)]
    sequences = range(5, 5 + 2 * len(times), 2)
    for sequence, time_us in zip(sequences, times, strict=True):
        each.note(sequence, time_us)
    cut = data.draw(st.integers(0, len(times)))
    together.note_all(sequences[:cut], times[:cut])
    together.note_all(sequences[cut:], times[cut:])
    assert together.encode() == each.encode()


def test_messages_far_apart_keep_their_own_times() -> None:
    known = ArrivalTimes()
    for sequence in range(10):
        known.note(sequence, sequence * STEP_US)
    assert [latest_us(known, at) for at in range(10)] == [at * STEP_US for at in range(10)]
    assert known.first_after(3 * STEP_US, 0, 10) == 4
    assert known.first_after(3 * STEP_US, 6, 10) == 6
    assert known.first_after(3 * STEP_US, 0, 2) == 2


def test_a_long_backlog_has_coarser_times_not_more_of_them() -> None:
    known, count = ArrivalTimes(), 10 * MARKS_MAX + 7
    for sequence in range(count):
        known.note(sequence, sequence * STEP_US)
    assert len(known._sequences) <= MARKS_MAX
    for sequence in range(0, count, 997):
        time_us = sequence * STEP_US
        assert known.earliest_us(sequence) <= time_us <= latest_us(known, sequence)
        assert latest_us(known, sequence) - known.earliest_us(sequence) <= 16 * STEP_US
    known.drop_before(count - 1)
    assert len(known._sequences) < MARKS_MAX // 2
    assert latest_us(known, count - 1) >= (count - 1) * STEP_US


def test_what_a_restart_has_found_gets_no_coarser_than_what_comes_after_it() -> None:
    """Found: three of them, and all of four hours had come at one time."""
    known, each = ArrivalTimes(), STEP_US // 2
    ends = [20 * MARKS_MAX * (4 + restarts) for restarts in range(5)]
    start = 0
    for end in ends:
        for sequence in range(start, end):
            known.note(sequence, sequence * each)
        known, start = ArrivalTimes.decode(known.encode()), end
    for sequence in range(0, ends[-1], 9973):
        grain_us = latest_us(known, sequence) - known.earliest_us(sequence)
        assert grain_us <= 8 * ends[-1] * each / MARKS_MAX


def test_a_clock_that_is_set_back_at_each_start_makes_no_more_marks() -> None:
    known = ArrivalTimes()
    for sequence in range(3 * MARKS_MAX):
        known.note(sequence, sequence % 2 * 10**12)
    assert len(known._sequences) <= MARKS_MAX


def test_a_clock_that_went_back_keeps_the_order() -> None:
    known = ArrivalTimes()
    known.note(0, 3_600_000_000)
    known.note(5, 7)
    assert (known.earliest_us(4), latest_us(known, 5)) == (3_600_000_000, 7)
    assert known.first_after(1_000, 0, 9) == 0


@pytest.mark.parametrize("data", [b"", bytes([1, 0, 0, 0]), bytes([2, 0, 0, 0]) + bytes(48)])
def test_impossible_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="mark"):
        ArrivalTimes.decode(data)


def test_messages_of_a_clock_that_was_ahead_count_as_there_at_the_start() -> None:
    times = ArrivalTimes()
    for sequence, time_s in enumerate((100, 200)):
        times.note(sequence, time_s * 1_000_000)
    times.end_recovery(2, 150_000_000)
    times.note(2, 151_000_000)
    younger = [times.first_younger(time_s * 1_000_000, 0, 3) for time_s in (99, 149, 150, 151)]
    assert younger == [0, 1, 2, 3]
    assert times.first_after(150_000_000, 0, 3) == 1, "by the clock of that moment"
    assert [times.clock_ahead_us(sequence) for sequence in range(3)] == [0, 50_000_000, 0]
    assert [times.same_clock_end(sequence, 3) for sequence in range(3)] == [1, 2, 3]
