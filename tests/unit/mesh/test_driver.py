"""What a driver's timers may say in a loop that is late, in virtual time."""

from __future__ import annotations

from typing import Any, cast

import trio
from trio.testing import MockClock

from mesh.driver import Driver
from mesh.protocol.timers import Timers

TURNS, LATE_S = 200, 0.7
"""Turns of which it is left to chance who is first in them."""


class Checking:
    """A core that is told the time: what has come by then, it must have heard."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.arrived_s: list[float] = []
        """When what was not read yet came."""
        self.ticks = 0

    def tick(self, now_s: float) -> None:
        assert not [at_s for at_s in self.arrived_s if at_s <= now_s]
        self.ticks += 1
        self.timers.run(now_s)
        self.timers.at(now_s + LATE_S, lambda _now_s: None)


async def test_whatever_has_come_by_the_time_of_a_timer_has_been_read(
    mock_clock: MockClock,
) -> None:
    """Found: where another task blocked the loop between the two, a dial was given up as not answered, whose answer
    was there; the other end took the link for one that had ended, and with it whatever it had asked by it."""
    core = Checking()
    driver = Driver(cast("Any", None))
    driver.core = cast("Any", core)
    core.timers.at(0.0, lambda _now_s: None)

    async def read() -> None:
        while True:
            await arrived.wait()
            core.arrived_s.clear()

    async with trio.open_nursery() as nursery:
        arrived = trio.Event()
        nursery.start_soon(driver._keep_time)
        nursery.start_soon(read)
        for _ in range(TURNS):
            mock_clock.jump(LATE_S)
            core.arrived_s.append(trio.current_time())
            arrived.set()
            arrived = trio.Event()
            await trio.lowlevel.checkpoint()
        assert core.ticks
        nursery.cancel_scope.cancel()
