"""What a driver's timers may say in a loop that is late, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mesh.driver import Driver
from tests.driving import Ticking, driving

TURNS, LATE_S = 200, 0.7
"""Turns of which it is left to chance who is first in them."""


class Checking(Ticking):
    """What has come by the time that it is told, it must have heard."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived_s: list[float] = []
        """When what was not read yet came."""
        self.ticks = 0
        self.past_s = 0.0
        """By how much what it was told at most was."""

    def tick(self, now_s: float) -> None:
        assert not [at_s for at_s in self.arrived_s if at_s <= now_s]
        self.ticks += 1
        self.past_s = max(self.past_s, trio.current_time() - now_s)
        super().tick(now_s)
        self.timers.call_at(now_s + LATE_S, lambda _now_s: None)


def driven() -> tuple[Driver, Checking]:
    core = Checking()
    core.timers.call_at(0.0, lambda _now_s: None)
    return driving(core), core


async def test_whatever_has_come_by_the_time_of_a_timer_has_been_read(
    mock_clock: MockClock,
) -> None:
    """Found: where another task blocked the loop between the two, a dial was given up as not answered, whose answer
    was there; the other end took the link for one that had ended, and with it whatever it had asked by it."""
    driver, core = driven()

    async def read() -> None:
        while True:
            await arrived.wait()
            core.arrived_s.clear()

    async with trio.open_nursery() as nursery:
        arrived = trio.Event()
        nursery.start_soon(driver._run_timers)
        nursery.start_soon(read)
        for _ in range(TURNS):
            mock_clock.jump(LATE_S)
            core.arrived_s.append(trio.current_time())
            arrived.set()
            arrived = trio.Event()
            await trio.lowlevel.checkpoint()
        assert core.ticks
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("turn", range(5))
async def test_a_timer_is_told_no_time_that_is_long_past(mock_clock: MockClock, turn: int) -> None:
    """Else what it begins, a dial above all, would be over before it has begun."""
    driver, core = driven()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver._run_timers)
        for _ in range(turn):
            await trio.lowlevel.checkpoint()
        mock_clock.jump(10 * LATE_S)
        await wait_all_tasks_blocked()
        assert core.ticks
        assert core.past_s < LATE_S
        nursery.cancel_scope.cancel()
