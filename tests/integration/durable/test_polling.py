"""Who waits for messages in small portions of time, while the connection is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import durable
import mesh
from durable.client.connection import Connection
from tests.brokers import client, node_of, payloads, serving, take
from tests.waiting import until


class SlowGreetings:
    """Of what a connection opens, until `come`."""

    def __init__(self, shop: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._greeting, self.come, self.count = shop._channel._greeting, trio.Event(), 0
        monkeypatch.setattr(shop._channel, "_greeting", self._late)

    async def _late(self, tunnel: mesh.Tunnel) -> Any:
        self.count += 1
        await self.come.wait()
        return await self._greeting(tunnel)


async def poll_in_vain(feed: durable.Deliveries | durable.Records, slow: SlowGreetings) -> None:
    """Lose the connection, and give the next one less time than it takes."""
    assert feed._tunnel is not None
    feed._tunnel.abort("lost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.take)
        await until(lambda: slow.count)
        nursery.cancel_scope.cancel()


async def test_who_polls_for_less_than_a_connection_takes_gets_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: each poll began anew, so none got through, and a queue that went with its last consumer was gone where
    the broker had let in one that was cancelled."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        for name in ("jobs", "audit"):
            await shop.publish("", name, b"one")
        for feed in (shop.consume("jobs"), shop.read("audit", start="first")):
            async with feed:
                slow = SlowGreetings(shop, monkeypatch)
                await poll_in_vain(feed, slow)
                slow.come.set()
                assert payloads(await take(feed, 1)) == [b"one"]
                assert slow.count == 1, "the same attempt"


async def test_who_leaves_while_a_connection_is_tried_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        tunnels = node_of(broker)._core.patterns.tunnels
        before = len(tunnels._ends)
        async with shop.consume("jobs") as deliveries:
            await poll_in_vain(deliveries, SlowGreetings(shop, monkeypatch))
        await until(lambda: len(tunnels._ends) == before)
        with pytest.raises(RuntimeError, match="outside of their `async with` block"):
            await deliveries.take()
