"""A program that consumes queues with the batch iterator and acks every batch.

A run ends when everything was received and, as `synced` confirms, the acks are on the broker's disk.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import durable
from bench.roles.durable_queues import declare_all
from bench.roles.mesh_node import join, until_silent
from bench.roles.stage import Order, Stage, play_async
from bench.sequence import Follower, Ring

if TYPE_CHECKING:
    from durable.client.deliveries import Deliveries


class Reader:
    """One queue's deliveries and the check of what has arrived."""

    def __init__(self, deliveries: Deliveries, ring: Ring) -> None:
        self._deliveries = deliveries
        self.synced = deliveries.synced
        self.follower = Follower(ring)

    async def read(self, end: int) -> None:
        """Receive and ack until `end` messages have arrived since the start of the program."""
        follower, take = self.follower, self._deliveries.take
        while follower.received < end:
            batch = await take()
            follower.take(batch.payloads)
            await batch.ack()


async def run(stage: Stage) -> None:
    settings = stage.settings
    queues, in_row = settings["queues"], settings["in_row"]
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    async with join(settings) as node, AsyncExitStack() as stack:
        broker = durable.connect(node)
        await declare_all(broker, queues)
        limits = {name: settings[name] for name in ("prefetch", "prefetch_bytes")}
        consuming = [broker.consume(queue, **limits) for queue in queues]
        readers = [
            Reader(
                deliveries, ring if len(queues) == 1 else ring.strand(place, len(queues), in_row)
            )
            for place, deliveries in enumerate(consuming)
        ]
        if not settings.get("paused"):
            await enter(stack, consuming)
        stage.ready()
        async for order in stage.orders_async():
            start_ns = time.perf_counter_ns()
            if settings.get("paused"):
                await enter(stack, consuming)
            await follow(readers, order)
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns(), **report(readers, order))


async def enter(stack: AsyncExitStack, consuming: list[Deliveries]) -> None:
    for deliveries in consuming:
        await stack.enter_async_context(deliveries)


async def follow(readers: list[Reader], order: Order) -> None:
    """Receive all messages of the order, or fewer if nothing arrives for a while: then messages were lost."""
    each = (order["start"] + order["count"]) // len(readers)

    def received() -> int:
        return sum(reader.follower.received for reader in readers)

    async with trio.open_nursery() as outer:
        outer.start_soon(until_silent, received, outer.cancel_scope)
        async with trio.open_nursery() as nursery:
            for reader in readers:
                nursery.start_soon(partial(reader.read, each))
        outer.cancel_scope.cancel()
    if received() >= each * len(readers):
        # Outside of the block above: nothing arrives during a sync, which only the bench's own time limit ends.
        for reader in readers:
            await reader.synced()


def report(readers: list[Reader], order: Order) -> dict[str, Any]:
    """Return one report, summed over all queues."""
    each = (order["start"] + order["count"]) // len(readers)
    reports = [reader.follower.report(each) for reader in readers]
    return {"reports": [{kind: sum(one[kind] for one in reports) for kind in reports[0]}]}


if __name__ == "__main__":
    play_async(run)
