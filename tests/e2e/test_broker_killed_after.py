"""SIGKILL of a broker right after something was said to be done: it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import trio

import durable
import mesh
from tests.broker import Broker
from tests.brokers import drain, numbered, payloads, take
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.waiting import PATIENCE_S


class Killed:
    """A broker, and a client of it."""

    def __init__(self, broker: Broker, node: mesh.Node) -> None:
        self._broker, self._node = broker, node
        self.shop = durable.connect(node, timeout=PATIENCE_S)

    async def kill(self) -> None:
        """Kill it and begin it again."""
        self._broker.kill()
        await trio.to_thread.run_sync(self._broker.begin, self._node.endpoints)


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Killed]:
    with closing(Broker(str(path))) as broker:
        await trio.to_thread.run_sync(broker.begin)
        async with mesh.join(
            "shop", network_secret=SECRET, listen=ANY_PORT, seeds=[broker.ready["endpoint"]],
            zeroconf=False, drain_s=0.1,
        ) as node:  # fmt: skip
            yield Killed(broker, node)


async def test_what_was_given_back_counts_once_the_block_has_been_left(tmp_path: Path) -> None:
    """Found: it was on its way to the disk, and a message that killed whoever took it came for ever."""
    async with serving(tmp_path) as killed:
        shop = killed.shop
        await shop.declare_queue("jobs", delivery_limit=3)
        await shop.publish("", "jobs", b"poison")
        for times in range(4):
            async with shop.consume("jobs") as deliveries:
                (one,) = await take(deliveries, 1)
                assert one.redelivered == times
            await killed.kill()
        assert await drain(shop, "jobs") == []


async def test_what_comes_back_at_a_start_makes_room(tmp_path: Path) -> None:
    """Found: a queue held twice its `max_length` until somebody published to it."""
    async with serving(tmp_path) as killed:
        shop = killed.shop
        await shop.declare_queue("late")
        await shop.declare_queue(
            "jobs", max_length=5, dead_letter_exchange="", dead_letter_routing_key="late"
        )
        await shop.publish_many("", "jobs", numbered(5))
        async with shop.consume("jobs", prefetch=5) as deliveries:
            await take(deliveries, 5)
            await shop.publish_many("", "jobs", numbered(5, 5))
            await killed.kill()
        assert await drain(shop, "jobs") == numbered(5, 5)
        async with shop.consume("late") as deliveries:
            found = await take(deliveries, 5)
        assert payloads(found) == numbered(5)
        assert {death.reason for one in found for death in one.deaths} == {"maxlen"}
