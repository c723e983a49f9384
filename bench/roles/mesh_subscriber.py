"""A node with one or more subscriptions, which checks every payload of each.

`when_full="block"`: a subscriber makes the publisher wait instead of dropping messages, so a rate here is one at which
everything arrives.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import trio

from bench.roles.mesh_node import SILENCE_S_MAX, drain, join, topic_names, until_silent
from bench.roles.stage import Order, Stage, play_async
from bench.sequence import Follower, Ring

if TYPE_CHECKING:
    import mesh

CHUNK = 500
"""Messages of the message iterator that are checked together."""


class Reader:
    """One subscription, with a follower for each topic, as order is promised only within a topic."""

    def __init__(self, subscription: mesh.Subscription, topics: list[str], ring: Ring) -> None:
        self._subscription, self._topics = subscription, topics
        self._batches = subscription.batches()
        self._followers = {
            topic: Follower(ring.strand(first, len(topics))) for first, topic in enumerate(topics)
        }

    @property
    def received(self) -> int:
        return sum(follower.received for follower in self._followers.values())

    def report(self, sent: int) -> dict[str, int]:
        """Return the report summed over the topics, which got the `sent` messages in turn."""
        total: Counter[str] = Counter()
        for first, topic in enumerate(self._topics):
            turns = len(range(first, sent, len(self._topics)))
            total.update(self._followers[topic].report(turns))
        return dict(total)

    async def wait_knock(self) -> None:
        await anext(aiter(self._subscription))

    async def drain(self) -> None:
        await drain(aiter(self._subscription))

    async def follow_batches(self, count: int) -> None:
        followers = self._followers
        async for batch in self._batches:
            payloads = batch.payloads
            followers[batch.topic].take(payloads)
            count -= len(payloads)
            if count <= 0:
                return

    async def follow_messages(self, count: int) -> None:
        """Receive `count` messages of the only topic; they are checked in chunks, which is cheaper than one by one."""
        (follower,) = self._followers.values()
        chunk: list[bytes] = []
        append, room = chunk.append, min(CHUNK, count)
        try:
            async for message in self._subscription:
                append(message.payload)
                if len(chunk) == room:
                    count -= room
                    if count == 0:
                        return
                    follower.take(chunk)
                    chunk.clear()
                    room = min(CHUNK, count)
        finally:
            follower.take(chunk)


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    topics = topic_names(settings["topics"])
    async with join(settings) as node, AsyncExitStack() as stack:
        readers = []
        for _ in range(settings["subscribers"]):
            opening = node.subscribe("bench.>", when_full="block")
            subscription = await stack.enter_async_context(opening)
            readers.append(Reader(subscription, topics, ring))
        for reader in readers:
            await reader.wait_knock()
        stage.ready()
        async for order in stage.orders_async():
            await read(stage, readers, order)


async def read(stage: Stage, readers: list[Reader], order: Order) -> None:
    """Carry out an order for subscribers: `drain` or `run`."""
    if order["do"] == "drain":
        for reader in readers:
            await reader.drain()
        stage.done()
        return
    silence_s = order.get("silence_s", SILENCE_S_MAX)
    await follow(readers, order["iterator"], order["count"], silence_s)
    end_ns = time.perf_counter_ns()
    sent = order["start"] + order["count"]
    stage.done(end_ns=end_ns, reports=[reader.report(sent) for reader in readers])


async def follow(readers: list[Reader], iterator: str, count: int, silence_s: float) -> None:
    """Receive until each reader has `count` messages, or nothing has come for `silence_s`."""
    async with trio.open_nursery() as watching:
        watching.start_soon(
            until_silent,
            lambda: sum(reader.received for reader in readers),
            watching.cancel_scope,
            silence_s,
        )
        async with trio.open_nursery() as following:
            for reader in readers:
                batches = iterator == "batches"
                following.start_soon(
                    reader.follow_batches if batches else reader.follow_messages, count
                )
        watching.cancel_scope.cancel()


if __name__ == "__main__":
    play_async(run)
