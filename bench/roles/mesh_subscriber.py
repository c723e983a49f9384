"""A node with one or more subscriptions, each of which checks every payload.

`when_full="block"`: the subscriber holds the publisher back instead of dropping, so a rate here
is one at which everything arrives.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import trio

from bench.roles.mesh_node import drain, join, until_silent
from bench.roles.stage import Stage, play_async
from bench.sequence import Follower, Ring

if TYPE_CHECKING:
    import mesh

CHUNK = 500
"""Single messages checked at once."""


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"])
    iterators = {"batches": follow_batches, "messages": follow_messages}
    async with join(settings) as node, AsyncExitStack() as stack:
        subscriptions = [
            await stack.enter_async_context(node.subscribe("bench.>", when_full="block"))
            for _ in range(settings["subscribers"])
        ]
        followers = [Follower(ring) for _ in subscriptions]
        for subscription in subscriptions:
            await anext(aiter(subscription))
        stage.ready()
        async for order in stage.orders_async():
            if order["do"] == "drain":
                for subscription in subscriptions:
                    await drain(aiter(subscription))
                stage.done()
                continue
            follow = iterators[order["iterator"]]
            async with trio.open_nursery() as watching:
                watching.start_soon(
                    until_silent,
                    lambda: sum(follower.received for follower in followers),
                    watching.cancel_scope,
                )
                async with trio.open_nursery() as following:
                    for subscription, follower in zip(subscriptions, followers, strict=True):
                        following.start_soon(follow, subscription, follower, order["count"])
                watching.cancel_scope.cancel()
            end_ns = time.perf_counter_ns()
            sent = order["start"] + order["count"]
            stage.done(end_ns=end_ns, reports=[follower.report(sent) for follower in followers])


async def follow_batches(subscription: mesh.Subscription, follower: Follower, count: int) -> None:
    async for batch in subscription.batches():
        payloads = batch.payloads
        follower.take(payloads)
        count -= len(payloads)
        if count <= 0:
            return


async def follow_messages(subscription: mesh.Subscription, follower: Follower, count: int) -> None:
    chunk: list[bytes] = []
    append, room = chunk.append, min(CHUNK, count)
    try:
        async for message in subscription:
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


if __name__ == "__main__":
    play_async(run)
