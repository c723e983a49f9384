"""Looking at sockets for a moment before the loop sleeps: when, for how long, and how seldom in vain."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio

from mesh.spinning import (
    POLLS_PER_YIELD,
    QUESTION_S_MAX,
    ROUND_S_MAX,
    SKIPS_MAX,
    SPIN_S_MAX,
    Spinner,
    spinner_of_this_run,
)

STEP_S = 1e-6


class Machine:
    """Sockets of which something comes after so many looks, a clock that each of them moves, and a processor."""

    def __init__(self, comes_after: int | None, yield_s: float = 0.0) -> None:
        self.looks = self.yields = 0
        self._left, self._yield_s = comes_after, yield_s
        self.now_s = 0.0
        self.spinner = Spinner(cast("Any", self), self._yielded, lambda: self.now_s)

    def poll(self, _timeout: int) -> Sequence[tuple[int, int]]:
        self.looks += 1
        self.now_s += STEP_S
        if self._left is None:
            return []
        self._left -= 1
        return [(3, 1)] if self._left < 0 else []

    def _yielded(self) -> None:
        self.yields += 1
        self.now_s += self._yield_s

    def wait(self, timeout_s: float = 10.0) -> int:
        """How often it looked."""
        before = self.looks
        self.spinner.before_io_wait(timeout_s)
        return self.looks - before


def test_nobody_looks_where_nothing_is_expected() -> None:
    machine = Machine(0)
    assert machine.wait() == 0
    with machine.spinner:
        assert machine.wait(0.0) == 0, "the loop has something to do"
        assert machine.wait() == 1
    assert machine.wait() == 0


def test_it_looks_until_something_comes_and_lets_others_in() -> None:
    machine = Machine(4 * POLLS_PER_YIELD + 1)
    with machine.spinner:
        assert machine.wait() == 4 * POLLS_PER_YIELD + 2
    assert machine.yields == 4


def test_what_does_not_come_is_looked_for_ever_more_seldom() -> None:
    machine = Machine(None)
    with machine.spinner:
        spun = [bool(machine.wait()) for _ in range(1 + 1 + 1 + 3 + 1)]
        assert spun == [True, False, True, False, False, False, True]
        assert machine.now_s < 3 * (SPIN_S_MAX + ROUND_S_MAX)
        for _ in range(5000):
            machine.wait()
        rests = 0
        while not machine.wait():
            rests += 1
        assert rests <= SKIPS_MAX
        while not machine.wait():
            rests += 1
        assert rests >= SKIPS_MAX


def test_what_comes_again_is_looked_for_each_time() -> None:
    machine = Machine(None)
    with machine.spinner:
        assert [bool(machine.wait()) for _ in range(3)] == [True, False, True]
        machine._left = 0
        while not machine.wait():
            pass
        machine._left = None
        assert [bool(machine.wait()) for _ in range(3)] == [True, False, True], "as at first"


def test_after_an_answer_it_looks_once_and_not_for_long() -> None:
    machine = Machine(None)
    machine.spinner.answered()
    assert machine.wait(0.0) == 0, "the loop has something to do"
    assert machine.wait()
    assert machine.now_s == pytest.approx(QUESTION_S_MAX, rel=0.1)
    assert machine.wait() == 0
    machine.spinner.answered()
    assert machine.wait() == 0, "it was in vain before"
    machine._left = 3
    machine.spinner.answered()
    assert machine.wait() == 4


def test_answers_in_vain_do_not_keep_it_from_what_is_expected() -> None:
    machine = Machine(None)
    for _ in range(100):
        machine.spinner.answered()
        machine.wait()
    with machine.spinner:
        assert machine.wait()


def test_after_an_answer_what_is_expected_is_looked_for_as_long_as_ever() -> None:
    machine = Machine(None)
    with machine.spinner:
        machine.spinner.answered()
        machine.wait()
    assert machine.now_s == pytest.approx(SPIN_S_MAX, rel=0.1)


def test_it_ends_before_the_loop_has_something_to_do() -> None:
    machine = Machine(None)
    with machine.spinner:
        assert all(machine.wait(SPIN_S_MAX / 10) for _ in range(5)), "not in vain: it was too short"
    assert machine.now_s == pytest.approx(5 * SPIN_S_MAX / 10, rel=0.1)


def test_it_ends_where_somebody_else_needs_the_processor() -> None:
    machine = Machine(None, yield_s=2 * ROUND_S_MAX)
    with machine.spinner:
        assert [machine.wait() for _ in range(3)] == [POLLS_PER_YIELD] * 3, (
            "not in vain: it was not tried"
        )


async def test_one_of_a_run_sees_what_comes() -> None:
    spinner = spinner_of_this_run()
    assert spinner is spinner_of_this_run()
    for _ in range(2):
        spinner.attach()
    reading, writing = os.pipe()
    spinner.watch(reading)
    with spinner:
        os.write(writing, b"x")
        await trio.lowlevel.wait_readable(reading)
    spinner.unwatch(reading)
    with pytest.raises(KeyError):
        spinner.unwatch(reading)
    os.close(reading)
    os.close(writing)
