"""How a connection comes to its broker, and back, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from durable.client.channel import RETRY_S, Channel
from durable.errors import BrokerLost
from mesh.errors import NoMembers
from mesh.node import Node
from mesh.tunnel import Tunnel
from tests.waiting import virtual_sleep

SETTLE_S = 2.0


class Lonely:
    """A node that finds no broker."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.looked_s: list[float] = []
        """When it began to look for one, and when it gave up."""

    def check_thread(self) -> None: ...

    def run_beside(self, task: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(task)

    @asynccontextmanager
    async def open_tunnel(self, target: str, **_: Any) -> AsyncIterator[Tunnel]:
        self.looked_s.append(trio.current_time())
        await virtual_sleep(SETTLE_S)
        self.looked_s.append(trio.current_time())
        raise NoMembers(target, SETTLE_S)
        yield


async def test_who_has_no_broker_looks_out_for_it_nearly_all_the_time(
    autojump_clock: MockClock,
) -> None:
    """Found: after a while it did so for half of the time, and missed a broker that was up for a second."""
    async with trio.open_nursery() as nursery:
        node = Lonely(nursery)
        with pytest.raises(BrokerLost, match="no members"):
            await Channel(cast("Node", node), "broker", "/", timeout_s=60.0).connected()
        nursery.cancel_scope.cancel()
    pauses_s = [later - sooner for sooner, later in pairwise(node.looked_s)][1::2]
    assert len(pauses_s) > 20
    assert max(pauses_s) == pytest.approx(RETRY_S)
