from __future__ import annotations

from math import inf

import pytest

from mesh.protocol.timers import Timers
from mesh.time_limits import PARTS

SECONDS = 8.0
PART_S = SECONDS / PARTS


def test_runs_what_is_due_in_order_and_nothing_else() -> None:
    timers, ran = Timers(), list[tuple[str, float]]()
    timers.call_at(2.0, lambda now_s: ran.append(("second", now_s)))
    timers.call_at(1.0, lambda now_s: ran.append(("first", now_s)))
    timers.call_at(2.0, lambda now_s: ran.append(("third", now_s)))
    timers.call_at(2.5, lambda now_s: ran.append(("later", now_s)))
    timers.run(0.5)
    assert ran == []
    timers.run(2.0)
    assert ran == [("first", 2.0), ("second", 2.0), ("third", 2.0)]
    assert timers.due_s() == 2.5


def test_a_cancelled_timer_is_not_due_and_never_runs() -> None:
    timers, ran = Timers(), list[float]()
    timer = timers.call_at(1.0, ran.append)
    timers.call_at(2.0, ran.append)
    timer.cancel()
    timer.cancel()
    assert timers.due_s() == 2.0
    timers.run(5.0)
    assert ran == [5.0]
    assert timers.due_s() == inf


def test_a_timer_is_over_once_its_time_has_come_or_it_was_cancelled() -> None:
    timers, over = Timers(), list[bool]()
    timer = timers.call_at(1.0, lambda now_s: over.append(timer.is_over))
    cancelled = timers.call_at(1.0, lambda now_s: None)
    cancelled.cancel()
    assert not timer.is_over
    assert cancelled.is_over
    timers.run(0.9)
    assert not timer.is_over
    timers.run(1.0)
    assert timer.is_over
    assert over == [True]


def test_a_timer_cancelled_by_another_one_that_runs() -> None:
    timers, ran = Timers(), list[float]()
    timers.call_at(1.0, lambda now_s: victim.cancel())
    victim = timers.call_at(1.0, ran.append)
    timers.run(1.0)
    assert ran == []


def test_a_timer_runs_once_and_may_set_the_next() -> None:
    timers, ran = Timers(), list[float]()

    def again(now_s: float) -> None:
        ran.append(now_s)
        timers.call_at(now_s + 1.0, again)

    timers.call_at(1.0, again)
    for now_s in (1.0, 1.5, 2.0):
        timers.run(now_s)
    assert ran == [1.0, 2.0]


def test_what_a_timer_sets_for_now_runs_now() -> None:
    timers, ran = Timers(), list[float]()

    def at_once(now_s: float) -> None:
        timers.call_at(now_s, ran.append)

    timers.call_at(1.0, at_once)
    timers.run(1.0)
    assert ran == [1.0]


def test_the_sleeper_is_told_of_an_earlier_deadline_only() -> None:
    timers, told = Timers(), list[float | None]()
    timers.on_earlier = lambda: told.append(timers.due_s())
    for at_s in (5.0, 6.0, 5.0, 3.0, 4.0):
        timers.call_at(at_s, lambda now_s: None)
    assert told == [5.0, 3.0]


def test_cancelled_timers_do_not_pile_up() -> None:
    timers, ran = Timers(), list[float]()
    kept = [timers.call_at(1000.0 + n, ran.append) for n in range(10)]
    for n in range(20_000):
        timers.call_at(float(n), ran.append).cancel()
        assert len(timers._heap) <= 1025
    assert timers.due_s() == 1000.0
    timers.run(2000.0)
    assert len(ran) == len(kept)


def test_many_live_timers_are_not_searched_again_and_again() -> None:
    timers = Timers()
    for n in range(5000):
        timers.call_at(float(n), lambda now_s: None)
    assert timers._cancelled_limit >= 5000 - 1
    timers.run(4998.0)
    assert timers.due_s() == 4999.0


@pytest.mark.parametrize("late_s", [0.0, 0.9 * PART_S])
def test_a_patient_timer_takes_the_time_it_was_given(late_s: float) -> None:
    """Also where each turn is a little late: that does not add up."""
    timers, ran = Timers(), list[float]()
    timer = timers.call_later(1.0, SECONDS, ran.append)
    for part in range(1, PARTS + 1):
        timers.run(now_s := 1.0 + part * PART_S - 0.05)
        assert not timer.is_over
        timers.run(now_s + 0.05 + late_s)
    assert ran == [1.0 + SECONDS + late_s]
    assert timer.is_over
    assert timers.due_s() == inf


def test_of_a_patient_timer_a_late_loop_spends_one_part() -> None:
    timers, ran = Timers(), list[float]()
    timers.call_later(0.0, SECONDS, ran.append)
    for part in range(PARTS):
        timers.run(10 * SECONDS + part * PART_S)
        assert bool(ran) == (part == PARTS - 1)


@pytest.mark.parametrize("parts", [0, 3])
def test_a_patient_timer_that_was_cancelled_never_runs(parts: int) -> None:
    timers, ran = Timers(), list[float]()
    timer = timers.call_later(0.0, SECONDS, ran.append)
    timers.run(parts * PART_S)
    timer.cancel()
    assert timers.due_s() == inf
    timers.run(100 * SECONDS)
    assert ran == []


def test_no_time_is_over_at_once_and_one_without_end_never() -> None:
    timers, ran = Timers(), list[float]()
    timers.call_later(1.0, float("inf"), ran.append)
    timers.call_later(1.0, 0.0, ran.append)
    timers.run(1.0)
    assert ran == [1.0]
    timers.run(1e9)
    assert ran == [1.0]
