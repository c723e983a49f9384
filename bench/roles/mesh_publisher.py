"""A node that publishes the ring by one of the three publishing methods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from bench.roles.mesh_node import KNOCK, join, topic_names
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring

if TYPE_CHECKING:
    import mesh

LIST_COUNT = 100
"""Payloads of one `publish_many`."""


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    topics = topic_names(settings["topics"])
    ways = {
        "publish": publish,
        "publish_nowait": publish_nowait,
        "publish_many": publish_many,
    }
    async with join(settings) as node:
        stage.ready(endpoint=node.endpoints[0])
        async for order in stage.orders_async():
            if order["do"] == "knock":
                await node.publish(topics[0], KNOCK)
                stage.done()
                continue
            start, count = order["start"], order["count"]
            start_ns = time.perf_counter_ns()
            if len(topics) > 1:
                await publish_in_turn(node, topics, ring, start, count)
            else:
                await ways[order["way"]](node, topics[0], ring, start, count)
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


async def publish(node: mesh.Node, topic: str, ring: Ring, start: int, count: int) -> None:
    send, payloads = node.publish, ring.payloads
    at = start % ring.count
    for _ in range(count):
        await send(topic, payloads[at])
        at += 1
        if at == ring.count:
            at = 0


async def publish_nowait(node: mesh.Node, topic: str, ring: Ring, start: int, count: int) -> None:
    """Publish without waiting; only a message that does not fit is published by `publish`, which waits."""
    send, payloads = node.publish_nowait, ring.payloads
    at = start % ring.count
    for _ in range(count):
        try:
            send(topic, payloads[at])
        except trio.WouldBlock:
            await node.publish(topic, payloads[at])
        at += 1
        if at == ring.count:
            at = 0


async def publish_many(node: mesh.Node, topic: str, ring: Ring, start: int, count: int) -> None:
    end = start + count
    for sequence in range(start, end, LIST_COUNT):
        await node.publish_many(topic, ring.slice(sequence, min(LIST_COUNT, end - sequence)))


async def publish_in_turn(
    node: mesh.Node, topics: list[str], ring: Ring, start: int, count: int
) -> None:
    """Publish each message to the next topic, by `await publish`."""
    send, payloads = node.publish, ring.payloads
    for sequence in range(start, start + count):
        await send(topics[sequence % len(topics)], payloads[sequence % ring.count])


if __name__ == "__main__":
    play_async(run)
