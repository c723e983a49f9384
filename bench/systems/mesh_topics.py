"""The mesh's publish-subscribe: matched at the publisher, encrypted; a slow subscriber makes publishers wait."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from bench.loops import Loop

from .mesh_nodes import Beside
from .system import Place, Received
from .topics import Connection, TopicSystem


class MeshTopics(TopicSystem):
    loop = "trio"

    def __init__(self, *, batches: bool = False) -> None:
        self._batches = batches
        self.latency = not batches
        self.name = "mesh-topics-batch" if batches else "mesh-topics"
        self.client = (
            "mesh, publish_many and the batch iterator"
            if batches
            else "mesh, publish and the message iterator"
        )

    def connect(self, place: Place, loop: Loop, *, first: bool) -> Topics:
        return Topics(place, first=first, batches=self._batches)


class Topics(Connection):
    def __init__(self, place: Place, *, first: bool, batches: bool) -> None:
        self._place, self._first, self._batches = place, first, batches
        self._beside = Beside()

    async def open(self) -> None:
        await self._beside.open(self._place, first=self._first)
        self._node = self._beside.node

    async def subscribe(self, topic: str, received: Received) -> None:
        await self._beside.nursery.start(self._follow, topic, received)

    async def _follow(
        self, topic: str, received: Received, task_status: trio.TaskStatus[None]
    ) -> None:
        async with self._node.subscribe(topic, when_full="block") as subscription:
            task_status.started()
            if self._batches:
                async for batch in subscription.batches():
                    await received(batch.payloads)
            async for message in subscription:
                await received((message.payload,))

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        if self._batches:
            await self._node.publish_many(topic, payloads)
            return
        publish = self._node.publish
        for payload in payloads:
            await publish(topic, payload)

    async def flush(self) -> None:
        await self._node.wait_sent()

    async def close(self) -> None:
        await self._beside.close()


SYSTEMS = (MeshTopics(), MeshTopics(batches=True))
