"""A node whose loop is late: what has come in time counts, also where it is looked at when its time is over."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

import mesh
from tests.loopback import ANY_PORT
from tests.processes import SECRET, member
from tests.waiting import PATIENCE_S, until_in_thread

TIMEOUT_S = 0.05
LATE_S = 6 * TIMEOUT_S
"""Times enough for a reply to come on any machine."""


@asynccontextmanager
async def shop() -> AsyncIterator[mesh.Node]:
    """A node that knows a member of `databases` in another process."""
    with member("databases") as one:
        seeds = [one.ready["endpoint"]]
        async with mesh.join(
            "shop", zeroconf=False, network_secret=SECRET, listen=ANY_PORT, seeds=seeds
        ) as node:
            with trio.fail_after(PATIENCE_S):
                await node.wait_members("databases")
            yield node


async def in_a_late_loop(ask: Callable[[], Awaitable[object]]) -> None:
    for _ in range(8):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            block(LATE_S)


async def test_a_reply_that_came_in_time_is_no_timeout_in_a_late_loop() -> None:
    """Found: every other time. Both are due in one turn, in any order."""
    async with shop() as node:
        await in_a_late_loop(partial(node.request, "databases/pid", b"", timeout=TIMEOUT_S))


async def test_a_tunnel_that_was_accepted_in_time_is_open_in_a_late_loop() -> None:
    """Found: it was RequestTimeout each time, and the member's handler ended."""
    async with shop() as node:

        async def ask() -> None:
            async with node.open_tunnel("databases", timeout=TIMEOUT_S):
                pass

        await in_a_late_loop(ask)


def block(seconds: float) -> None:
    """The whole loop."""
    end_s = time.monotonic() + seconds
    until_in_thread(lambda: time.monotonic() >= end_s)
