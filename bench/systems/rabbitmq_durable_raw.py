"""RabbitMQ without a client library: persistent messages with confirms to a durable queue, acked many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop

from .rabbitmq_durable import ACK_COUNT, LIMITS, PERSISTENT, QUEUE, name_of
from .rabbitmq_raw import (
    FRAME_END,
    FRAME_HEAD_BYTES,
    TAG,
    DeliveryFrames,
    ask,
    body_head,
    in_frames,
    marshalled,
    open_channel,
)
from .rabbitmq_server import RabbitMQSystem
from .raw_frames import FixedFrames
from .raw_stored import OUTSTANDING, RawConsumer, RawPublisher, RawStored
from .system import Place, Received

METHOD = b"\x01"
NUMBER_BYTES = 8
CONFIRM_HEAD = b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""Start of a method frame on channel 1, 13 bytes long: Basic.Ack."""


class RabbitMQDurableRaw(RabbitMQSystem, RawStored):
    module = "pamqp"

    def __init__(self, *, queue_type: str = "classic", each: bool = False) -> None:
        self._queue_type = queue_type
        how = f"up to 500 messages in one write, {OUTSTANDING} confirms outstanding"
        client = (
            f"AMQP frames over a socket, {queue_type} queue, "
            f"{'one confirm at a time' if each else how}; deliveries acked {ACK_COUNT} at a time"
        )
        super().__init__(f"{name_of(queue_type)}-raw", client, "batched fsync", each=each)
        self.latency &= queue_type == "classic"

    def publisher(self, place: Place, loop: Loop, replied: Received | None) -> Publisher:
        return Publisher(place, loop, self._queue_type, replied)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Taker:
        return Taker(place, loop, self._queue_type, received)


def properties() -> Any:
    return import_module("pamqp.commands").Basic.Properties(delivery_mode=PERSISTENT)


def declare(queue_type: str, **limits: int) -> Any:
    arguments = {"x-queue-type": queue_type, **limits}
    return import_module("pamqp.commands").Queue.Declare(
        0, QUEUE, durable=True, arguments=arguments
    )


class Publisher(RawPublisher):
    _confirmed = 0

    def __init__(self, place: Place, loop: Loop, queue_type: str, replied: Received | None) -> None:
        super().__init__(place, loop, replied)
        self._queue_type = queue_type

    def greet(self) -> None:
        """Declare the queue, with a size limit under an open load, as only at full throttle a consumer reads it."""
        open_channel(self.stream)
        ask(self.stream, declare(self._queue_type, **(LIMITS if self._replied else {})))
        ask(self.stream, import_module("pamqp.commands").Confirm.Select())

    def frames(self) -> FixedFrames:
        return FixedFrames(CONFIRM_HEAD, NUMBER_BYTES + 1, len(FRAME_END))

    def confirmed(self, parts: Sequence[bytes]) -> int:
        """Return how many more messages are confirmed.

        A confirm covers its own number or all numbers up to it. A queue confirms in order.
        """
        before = self._confirmed
        for part in parts:
            number = int.from_bytes(part[:NUMBER_BYTES], "big")
            self._confirmed = number if part[NUMBER_BYTES] else self._confirmed + 1
        return self._confirmed - before

    def around(self) -> tuple[bytes, bytes]:
        publish = import_module("pamqp.commands").Basic.Publish(0, "", QUEUE)
        head = body_head(self.place.size_bytes, properties())
        return marshalled(publish) + head, FRAME_END

    def bodies(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        return in_frames(payloads)


class Taker(RawConsumer):
    def __init__(self, place: Place, loop: Loop, queue_type: str, received: Received) -> None:
        super().__init__(place, loop, received)
        self._queue_type = queue_type

    def greet(self) -> None:
        commands = import_module("pamqp.commands")
        open_channel(self.stream)
        ask(self.stream, declare(self._queue_type))
        ask(self.stream, commands.Basic.Qos(0, OUTSTANDING))
        self._received = self._acked = 0

    def frames(self) -> AnsweredFrames:
        self._frames = AnsweredFrames(QUEUE, self.place.size_bytes, properties())
        return self._frames

    def begin(self) -> None:
        """Start to consume. The answer comes before the first delivery."""
        self.stream.write(marshalled(import_module("pamqp.commands").Basic.Consume(0, QUEUE, TAG)))

    async def took(self, parts: Sequence[bytes]) -> None:
        await self.received(parts)
        self._received += len(parts)
        if self._received - self._acked >= ACK_COUNT:
            self._ack()

    def _ack(self) -> None:
        ack = import_module("pamqp.commands").Basic.Ack(self._received, multiple=True)
        self.stream.write(marshalled(ack))
        self._acked = self._received

    async def settle(self) -> None:
        """Ack the rest, and wait for the answer to a declare sent after the acks, which have no answers themselves."""
        if self._acked < self._received:
            self._ack()
        answers = self._frames.answers
        self.stream.write(marshalled(declare(self._queue_type)))
        while self._frames.answers == answers:
            self.stream.wait()


class AnsweredFrames(DeliveryFrames):
    """Deliveries, between which there are answers, which are counted."""

    answers = 0

    def other(self, data: bytes, at: int) -> int:
        """Skip a method frame that is not a delivery; both begin with the same bytes."""
        head = data[at : at + FRAME_HEAD_BYTES]
        if not head.startswith(METHOD) or self._head.startswith(data[at : at + len(self._head)]):
            return super().other(data, at)
        length = FRAME_HEAD_BYTES + int.from_bytes(head[3:], "big") + len(FRAME_END)
        if len(head) < FRAME_HEAD_BYTES or at + length > len(data):
            return 0
        self.answers += 1
        return length


SYSTEMS = (
    RabbitMQDurableRaw(),
    RabbitMQDurableRaw(queue_type="quorum"),
    RabbitMQDurableRaw(each=True),
    RabbitMQDurableRaw(queue_type="quorum", each=True),
)
