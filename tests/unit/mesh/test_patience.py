"""How long somebody waits in a loop that is late, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mesh.patience import PARTS, within
from mesh.protocol.timers import Timer, Timers

SECONDS = 8.0
PART_S = SECONDS / PARTS


class Waiting:
    """Somebody who waits SECONDS for what never comes, by timers that run when the test says so."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.over = False

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.timers.at(trio.current_time() + seconds, lambda _now_s: call())

    async def wait(self) -> None:
        with within(SECONDS, self.after) as scope:
            await trio.sleep_forever()
        self.over = scope.cancelled_caught

    async def look(self) -> bool:
        """Whether the time is over, in a turn that has just begun."""
        self.timers.run(trio.current_time())
        await wait_all_tasks_blocked()
        return self.over


@asynccontextmanager
async def waiting() -> AsyncGenerator[Waiting]:
    async with trio.open_nursery() as nursery:
        one = Waiting()
        nursery.start_soon(one.wait)
        await wait_all_tasks_blocked()
        yield one
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("late_s", [0.0, 0.9 * PART_S])
async def test_the_time_is_what_was_asked_for(mock_clock: MockClock, late_s: float) -> None:
    """Also where each turn is a little late: that does not add up."""
    async with waiting() as one:
        for part in range(1, PARTS + 1):
            mock_clock.jump(part * PART_S - trio.current_time())
            assert not one.over
            mock_clock.jump(late_s)
            assert await one.look() == (part == PARTS)


async def test_a_loop_that_is_blocked_spends_one_part(mock_clock: MockClock) -> None:
    async with waiting() as one:
        mock_clock.jump(10 * SECONDS)
        for _ in range(PARTS - 1):
            assert not await one.look()
            mock_clock.jump(PART_S)
        assert await one.look()


async def test_who_need_not_wait_leaves_no_timer(mock_clock: MockClock) -> None:
    timers = Waiting()
    with within(SECONDS, timers.after) as scope:
        await trio.lowlevel.checkpoint()
    assert not scope.cancelled_caught
    assert timers.timers.due_s() is None


async def test_no_time_is_over_at_once_and_one_without_end_never(mock_clock: MockClock) -> None:
    one = Waiting()
    with within(0.0, one.after) as scope:
        one.timers.run(trio.current_time())
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    with within(float("inf"), one.after) as scope:
        mock_clock.jump(1e9)
        one.timers.run(trio.current_time())
        await trio.lowlevel.checkpoint()
    assert not scope.cancelled_caught
