"""When a command that prints messages ends by itself, in virtual time."""

from __future__ import annotations

from argparse import Namespace
from typing import cast

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.client.delivery import Delivery
from durable.client.feed import Feed
from durable.commands.printing import _until_enough
from mesh.time_limits import PARTS
from tests.driving import Ticking, driving

IDLE_S = 1.0


class Given:
    """A feed of what a test gives, of a node with nothing but its clock."""

    def __init__(self, nursery: trio.Nursery) -> None:
        driver = driving(Ticking())
        self.within = driver.within
        nursery.start_soon(driver._run_timers)
        self._send, self._receive = trio.open_memory_channel[str](1)

    async def give(self, readable: trio.Event, message: str) -> None:
        await readable.wait()
        self._send.send_nowait(message)

    async def __anext__(self) -> Delivery:
        try:
            return cast("Delivery", self._receive.receive_nowait())
        except trio.WouldBlock:
            return cast("Delivery", await self._receive.receive())


async def test_a_message_that_is_there_when_a_late_loop_looks_has_come(
    mock_clock: MockClock,
) -> None:
    """Found: `--idle` ended without it where the loop was late for as long."""
    printed = dict[object, None]()
    async with trio.open_nursery() as nursery:
        given = Given(nursery)

        async def show() -> None:
            args = Namespace(count=None, idle=IDLE_S)
            async for message in _until_enough(cast("Feed", given), args):
                printed[message] = None
            nursery.cancel_scope.cancel()

        nursery.start_soon(show)
        for message in "abc":
            readable = trio.Event()
            nursery.start_soon(given.give, readable, message)
            await wait_all_tasks_blocked()
            mock_clock.jump(2 * IDLE_S)
            readable.set()
            await wait_all_tasks_blocked()
        assert list(printed) == ["a", "b", "c"]
        for _ in range(PARTS):
            mock_clock.jump(IDLE_S / PARTS)
            await wait_all_tasks_blocked()
    assert nursery.cancel_scope.cancelled_caught, "it ends, and nothing else has"
