"""A node whose loop is late: what has come in time counts, also where it is looked at when its time is over.

Its clock stands still from a question until the answer has come, so that no machine is too busy for that.
"""

from __future__ import annotations

import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio.testing

import mesh
from mesh.zmq_transport import ZmqTransport
from tests.loopback import ANY_PORT
from tests.processes import SECRET, Process, member
from tests.waiting import PATIENCE_S, until_in_thread

TIMEOUT_S = 0.05
LATE_S = 6 * TIMEOUT_S
SILENT: dict[str, Any] = {
    "heartbeat_s": 30.0, "stalled_s": 60.0, "suspect_s": 60.0, "dead_s": 70.0, "resume_s": 80.0,
}  # fmt: skip
"""Nothing comes but answers."""


@asynccontextmanager
async def shop(clock: trio.testing.MockClock) -> AsyncIterator[tuple[mesh.Node, Process]]:
    """A node that knows a member of `databases` in another process."""
    clock.rate = 1.0
    with member("databases", **SILENT) as one:
        seeds = [one.ready["endpoint"]]
        async with mesh.join(
            "shop", zeroconf=False, network_secret=SECRET, listen=ANY_PORT, seeds=seeds, **SILENT
        ) as node:
            with trio.fail_after(PATIENCE_S):
                await node.wait_members("databases")
            yield node, one


def something_has_come(node: mesh.Node) -> bool:
    """That nobody has looked at: libzmq's descriptors say so, and stay as they are."""
    transport = node._driver._transport
    assert isinstance(transport, ZmqTransport)
    sockets = (transport._inbound, *transport._outbound.values())
    return bool(select.select([one.fd for one in sockets], [], [], 0)[0])


async def in_a_late_loop(
    clock: trio.testing.MockClock, node: mesh.Node, one: Process,
    ask: Callable[[], Awaitable[object]], what: str,
) -> None:  # fmt: skip
    """`what`: by which the member counts what it is asked."""

    def asked() -> int:
        return int(one.call("counts").get(what, 0))

    for _ in range(8):
        before = asked()
        async with trio.open_nursery() as nursery:
            one.freeze()
            clock.rate = 0.0
            try:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                one.thaw()
                until_in_thread(lambda: asked() > before)
                until_in_thread(lambda: something_has_come(node))
                clock.jump(LATE_S)
            finally:
                clock.rate = 1.0


async def test_a_reply_that_came_in_time_is_no_timeout_in_a_late_loop(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Found: every other time. Both are due in one turn, in any order."""
    async with shop(mock_clock) as (node, one):
        ask = partial(node.request, "databases", b"", timeout=TIMEOUT_S)
        await in_a_late_loop(mock_clock, node, one, ask, "requests")


async def test_a_tunnel_that_was_accepted_in_time_is_open_in_a_late_loop(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Found: it was RequestTimeout each time, and the member's handler ended."""
    async with shop(mock_clock) as (node, one):

        async def ask() -> None:
            async with node.open_tunnel("databases", timeout=TIMEOUT_S):
                pass

        await in_a_late_loop(mock_clock, node, one, ask, "tunnels")
