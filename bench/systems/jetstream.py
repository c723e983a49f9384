"""NATS JetStream with a file store: a message acked is in the page cache, which is synced every two minutes.

The reply of a request is the ack of its publish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from bench.loops.loop import Loop, drive

from .nats import NatsSystem, connected, server
from .system import UNREAD_BYTES_MAX, Command, Place, Received

STREAM = "bench"
OUTSTANDING = 2000
FETCH_COUNT = 500
FETCH_S = 0.25
ACK_S_MAX = 60.0
ACK_PENDING_MAX = 20_000


def stream_server(place: Place) -> Command:
    return server(place, "-js", "-sd", str(Path(place.directory) / "streams"))


class JetStream(NatsSystem):
    name = "jetstream"
    client = (
        f"nats-py, publish_async with {OUTSTANDING} outstanding; fetch({FETCH_COUNT}), "
        "AckPolicy.ALL: one ack a fetch"
    )
    promise = "page cache"
    loop = "asyncio"
    replies = False

    def commands(self, place: Place) -> list[Command]:
        return [stream_server(place)]

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Requester:
        return Requester(place, replied)

    def producer(self, place: Place, loop: Loop) -> Producer:
        return Producer(place)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Consumer:
        return Consumer(place, received)


class _Client:
    limits: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, place: Place) -> None:
        self._place = place

    async def setup(self) -> None:
        self._client = await connected(self._place)
        self._stream = self._client.jetstream(publish_async_max_pending=OUTSTANDING)
        await self._stream.add_stream(name=STREAM, subjects=[STREAM], storage="file", **self.limits)

    async def teardown(self) -> None:
        await self._client.close()


class Requester(_Client):
    """Publishes. With OUTSTANDING acks missing it waits for one, and what is due then is late."""

    limits: ClassVar[Mapping[str, Any]] = {"max_bytes": UNREAD_BYTES_MAX}

    def __init__(self, place: Place, replied: Received) -> None:
        super().__init__(place)
        self._replied = replied

    async def request(self, payload: bytes) -> None:
        def acked(ack: asyncio.Future[Any]) -> None:
            """One that fails is a confirm that never comes."""
            if not ack.cancelled() and ack.exception() is None:
                drive(self._replied((payload,)))

        ack = await self._stream.publish_async(STREAM, payload, wait_stall=ACK_S_MAX)
        ack.add_done_callback(acked)


class Producer(_Client):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        publish = self._stream.publish_async
        for payload in payloads:
            await publish(STREAM, payload, wait_stall=ACK_S_MAX)

    async def flush(self) -> None:
        await asyncio.wait_for(self._stream.publish_async_completed(), ACK_S_MAX)


class Consumer(_Client):
    def __init__(self, place: Place, received: Received) -> None:
        super().__init__(place)
        self._received, self._acking = received, asyncio.Lock()

    async def setup(self) -> None:
        await super().setup()
        api = import_module("nats.js.api")
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.ALL, ack_wait=300, max_ack_pending=ACK_PENDING_MAX
        )
        self._deliveries = await self._stream.pull_subscribe(STREAM, durable=STREAM, config=config)
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        """A fetch waits for all it asks for, or until FETCH_S are over: with what came, that ends it."""
        while True:
            try:
                messages = await self._deliveries.fetch(FETCH_COUNT, timeout=FETCH_S)
            except TimeoutError:
                continue
            async with self._acking:
                await self._received([message.data for message in messages])
                await messages[-1].ack()

    async def settle(self) -> None:
        """The server does not answer acks, but tells how many it waits for."""
        async with self._acking, asyncio.timeout(ACK_S_MAX):
            while (await self._deliveries.consumer_info()).num_ack_pending:
                continue

    async def teardown(self) -> None:
        self._following.cancel()
        await super().teardown()


SYSTEMS = (JetStream(),)
