"""Connections between a broker and its client that are reset again and again: links heal, and where one does
not in time, tunnels open again. Nothing that was confirmed is lost, nothing is stored twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

import durable
import mesh
from bench.proxy import Proxy
from tests.broker import CONFIG
from tests.brokers import node_of, serving
from tests.loopback import HOST
from tests.nodes import free_ports, node
from tests.queue_load import RETURNS, QueueLoad
from tests.stream_load import StreamLoad
from tests.waiting import until

SEED, RESETS, PULLED_EVERY = 11, 9, 3
RESETS_MAX = 10 * RESETS
"""Whether a confirm was on its way when a cable was pulled is chance: until one was."""
PARTS = 20
HASTY = {"heartbeat_s": 0.25, "stalled_s": 0.5, "suspect_s": 0.5, "dead_s": 1.0, "resume_s": 1.0}


class Cable(Proxy):
    """One that can be pulled, too."""

    pulled = False

    async def _forward(self, client: trio.socket.SocketType) -> None:
        if self.pulled:
            client.close()
        else:
            await super()._forward(client)

    def pull(self) -> None:
        self.pulled = True
        self.reset()


@asynccontextmanager
async def through_cables(
    path: Path,
) -> AsyncIterator[tuple[durable.Broker, mesh.Node, list[Cable]]]:
    """A broker and a node, each of which is reached by a cable only."""
    ports = free_ports(8)  # Two for each, for a network secret of today and the next one.
    cables = [Cable((HOST, ports + at)) for at in range(4)]
    ways = [
        {
            "listen": f"tcp://{HOST}:{first}-{first + 1}",
            "advertise": f"tcp://{HOST}:{first + 4}-{first + 5}",
        }
        for first in (ports, ports + 2)
    ]
    async with trio.open_nursery() as nursery:
        for at, cable in enumerate(cables):
            await nursery.start(cable.serve, (HOST, ports + 4 + at))
        async with (
            serving(path, config=CONFIG, **ways[0], **HASTY) as broker,
            node("shop", seeds=list(node_of(broker).endpoints[:1]), **ways[1], **HASTY) as shop,
        ):
            yield broker, shop, cables
        nursery.cancel_scope.cancel()


async def pull_for_good(broker: mesh.Node, shop: mesh.Node, cables: Sequence[Cable]) -> None:
    """Until both have given the link up, and with it all that was on its way."""
    for cable in cables:
        cable.pull()
    await until(lambda: not shop.statistics().links and not broker.statistics().links, 20)
    for cable in cables:
        cable.pulled = False


async def test_connections_that_are_reset_lose_nothing_and_store_nothing_twice(
    tmp_path: Path,
) -> None:
    async with through_cables(tmp_path) as (broker, shop, cables):
        connection = durable.connect(shop, timeout=60)
        pulled = -(-RESETS_MAX // PULLED_EVERY)
        load = QueueLoad(connection, SEED, returns=RETURNS + pulled)
        streams = StreamLoad(shop, connection, SEED)
        await load.declare()
        await streams.declare()
        moments, intake = Random(SEED), broker.hosted("/").vhost.intake.counts

        async def more() -> None:
            parts, of_stream = load.parts + moments.randrange(1, PARTS), streams.parts + 1
            await until(lambda: load.parts >= parts and streams.parts >= of_stream, 60)

        async with trio.open_nursery() as nursery:
            load.begin(nursery)
            streams.begin(nursery)
            for number in range(RESETS_MAX):
                if number >= RESETS and number % PULLED_EVERY == 0 and intake.duplicates:
                    break
                await more()
                if number % PULLED_EVERY:
                    for cable in cables:
                        cable.reset()
                else:
                    streams.outage_begins()
                    await pull_for_good(node_of(broker), shop, cables)
                    await streams.outage_ends(node_of(broker).id)
            await more()
            await load.finish()
            await streams.finish()
            nursery.cancel_scope.cancel()
        await load.check()
        await streams.check()
        assert sum(one.resumes for one in shop.statistics().links) > 0, "the last link has healed"
        assert intake.duplicates, "some came again, and were known"
