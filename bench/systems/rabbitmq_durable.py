"""RabbitMQ, a durable queue, persistent messages: the reply of a request is its confirm.

A confirm means that the message is on the disk, with one sync for many: by fsync in a classic queue, by
fdatasync in the log of a quorum queue's only member. strace counted 7 and 56 of them for 5,000 messages,
2,000 at a time, and 500 of either for 500 messages, one at a time (3.10.8).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop, drive

from .rabbitmq import answered, opened
from .rabbitmq_server import RabbitMQSystem
from .stored import StoredSystem
from .system import UNREAD_BYTES_MAX, Place, Received

QUEUE = "bench"
PERSISTENT = 2
OUTSTANDING = 2000
ACK_COUNT = 500
CONFIRM_S_MAX = 60.0
LIMITS = {"x-max-length-bytes": UNREAD_BYTES_MAX}


def name_of(queue_type: str) -> str:
    return "rabbitmq-durable" if queue_type == "classic" else f"rabbitmq-{queue_type}"


class RabbitMQDurable(RabbitMQSystem, StoredSystem):
    module = "pika"
    loop = "asyncio"

    def __init__(self, *, queue_type: str = "classic", each: bool = False) -> None:
        self._queue_type, self._outstanding = queue_type, 1 if each else OUTSTANDING
        how = "one confirm at a time" if each else f"{OUTSTANDING} confirms outstanding"
        client = (
            f"pika, AsyncioConnection, {queue_type} queue, {how}; deliveries acked "
            f"{ACK_COUNT} at a time"
        )
        super().__init__(name_of(queue_type), client, "batched fsync", each=each)
        self.latency &= queue_type == "classic"

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Requester:
        return Requester(place, self._queue_type, replied)

    def producer(self, place: Place, loop: Loop) -> Producer:
        return Producer(place, self._queue_type, self._outstanding)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Consumer:
        return Consumer(place, self._queue_type, received)


class _Client:
    def __init__(self, place: Place, queue_type: str) -> None:
        self._place, self._queue_type = place, queue_type

    async def setup(self, **limits: int) -> None:
        self._connection, self._channel = await opened(self._place)
        arguments = {"x-queue-type": self._queue_type, **limits}
        await answered(self._channel.queue_declare, QUEUE, durable=True, arguments=arguments)

    async def teardown(self) -> None:
        if self._connection.is_open:
            self._connection.close()


class _Publisher(_Client):
    """Keeps the payloads that are not confirmed. A message that the server refuses is never confirmed."""

    async def setup(self, **limits: int) -> None:
        await super().setup(**limits)
        self._properties = import_module("pika").BasicProperties(delivery_mode=PERSISTENT)
        self._unconfirmed: OrderedDict[int, bytes] = OrderedDict()
        self._sent = 0
        await answered(self._channel.confirm_delivery, self._answered)

    def publish_one(self, payload: bytes) -> None:
        self._sent += 1
        self._unconfirmed[self._sent] = payload
        self._channel.basic_publish("", QUEUE, payload, self._properties)

    def confirmed(self, payloads: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _answered(self, frame: Any) -> None:
        method, unconfirmed = frame.method, self._unconfirmed
        if method.NAME != "Basic.Ack":
            return
        payloads = []
        if method.multiple:
            while unconfirmed and next(iter(unconfirmed)) <= method.delivery_tag:
                payloads.append(unconfirmed.popitem(last=False)[1])
        else:
            payloads.append(unconfirmed.pop(method.delivery_tag))
        self.confirmed(payloads)


class Requester(_Publisher):
    def __init__(self, place: Place, queue_type: str, replied: Received) -> None:
        super().__init__(place, queue_type)
        self._replied = replied

    async def setup(self, **limits: int) -> None:
        await super().setup(**LIMITS)

    async def request(self, payload: bytes) -> None:
        self.publish_one(payload)

    def confirmed(self, payloads: Sequence[bytes]) -> None:
        drive(self._replied(payloads))


class Producer(_Publisher):
    def __init__(self, place: Place, queue_type: str, outstanding: int) -> None:
        super().__init__(place, queue_type)
        self._outstanding = outstanding

    async def setup(self, **limits: int) -> None:
        await super().setup(**limits)
        self._some_confirmed = asyncio.Event()

    async def publish(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            if len(self._unconfirmed) >= self._outstanding:
                await self._wait(self._outstanding // 2)
            self.publish_one(payload)

    async def flush(self) -> None:
        await self._wait(0)

    def confirmed(self, payloads: Sequence[bytes]) -> None:
        self._some_confirmed.set()

    async def _wait(self, count: int) -> None:
        """Wait until at most `count` are unconfirmed. Raises TimeoutError if no confirm comes for CONFIRM_S_MAX."""
        while len(self._unconfirmed) > count:
            self._some_confirmed.clear()
            await asyncio.wait_for(self._some_confirmed.wait(), CONFIRM_S_MAX)


class Consumer(_Client):
    def __init__(self, place: Place, queue_type: str, received: Received) -> None:
        super().__init__(place, queue_type)
        self._received = received
        self._unacked = self._last_tag = 0

    async def setup(self, **limits: int) -> None:
        await super().setup(**limits)
        await answered(self._channel.basic_qos, prefetch_count=OUTSTANDING)
        await answered(self._channel.basic_consume, QUEUE, self._take)

    def _take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        drive(self._received((body,)))
        self._unacked += 1
        self._last_tag = method.delivery_tag
        if self._unacked == ACK_COUNT:
            self._ack()

    def _ack(self) -> None:
        self._channel.basic_ack(self._last_tag, multiple=True)
        self._unacked = 0

    async def settle(self) -> None:
        """Ack the rest, and wait for the answer to a declare sent after the acks, which have no answers themselves."""
        if self._unacked:
            self._ack()
        await answered(self._channel.queue_declare, QUEUE, passive=True)


SYSTEMS = (
    RabbitMQDurable(),
    RabbitMQDurable(queue_type="quorum"),
    RabbitMQDurable(each=True),
    RabbitMQDurable(queue_type="quorum", each=True),
)
