"""RabbitMQ without a client library: AMQP 0.9.1 frames. pamqp encodes commands, but nothing for each message.

A delivery is a method frame, a header frame, and a body in frames of up to PIECE_BYTES.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop

from .rabbitmq_server import RabbitMQSystem
from .raw_frames import Cut, FixedFrames
from .raw_socket import RawConnection, RawSystem, Stream
from .system import Place

GREETING = b"AMQP\x00\x00\x09\x01"
FRAME_BYTES_MAX = 131_072
FRAME_HEAD_BYTES, FRAME_END = 7, b"\xce"
PIECE_BYTES = FRAME_BYTES_MAX - FRAME_HEAD_BYTES - len(FRAME_END)
CHANNEL = 1
TAG = "c"


class RabbitMQRaw(RabbitMQSystem, RawSystem):
    name = "rabbitmq-raw"
    client = "AMQP frames over a socket, up to 500 messages in one write"
    module = "pamqp"

    def connect(self, place: Place, loop: Loop, *, first: bool) -> AmqpBytes:
        return AmqpBytes(place, loop)


class AmqpBytes(RawConnection):
    def greet(self) -> None:
        open_channel(self.stream)

    def ask(self, topic: str) -> DeliveryFrames:
        commands = import_module("pamqp.commands")
        ask(self.stream, commands.Queue.Declare(0, topic, auto_delete=True))
        ask(self.stream, commands.Basic.Consume(0, topic, TAG, no_ack=True))
        return DeliveryFrames(topic, self.place.size_bytes)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        publish = import_module("pamqp.commands").Basic.Publish(0, "", topic)
        size_bytes = self.place.size_bytes
        return marshalled(publish) + body_head(size_bytes), FRAME_END

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        await super().send(topic, in_frames(payloads))


def open_channel(stream: Stream) -> None:
    commands = import_module("pamqp.commands")
    stream.write(GREETING)
    read_answer(stream)
    ask(stream, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), channel=0)
    stream.write(marshalled(commands.Connection.TuneOk(CHANNEL, FRAME_BYTES_MAX, 0), channel=0))
    ask(stream, commands.Connection.Open("/"), channel=0)
    ask(stream, commands.Channel.Open())


def ask(stream: Stream, command: Any, *, channel: int = CHANNEL) -> None:
    stream.write(marshalled(command, channel))
    read_answer(stream)


def read_answer(stream: Stream) -> None:
    """Read one frame. Raises OSError if the server refuses, as it then hangs up."""
    head = stream.read_exactly(FRAME_HEAD_BYTES)
    stream.read_exactly(int.from_bytes(head[3:], "big") + len(FRAME_END))


class DeliveryFrames(FixedFrames):
    """Deliveries, which differ only in their number, which follows the consumer's tag."""

    def __init__(self, topic: str, size_bytes: int, properties: Any = None) -> None:
        deliver = import_module("pamqp.commands").Basic.Deliver(TAG, 0, False, "", topic)
        method = marshalled(deliver)
        head = method[: method.index(TAG.encode()) + len(TAG)]
        before = len(method) + len(body_head(size_bytes, properties))
        whole = size_bytes + (-(-size_bytes // PIECE_BYTES) - 1) * len(FRAME_END + frame_head(0))
        super().__init__(head, whole, len(FRAME_END), before - len(head))
        self._one_piece = whole == size_bytes

    def cut(self, data: bytes) -> Cut:
        bodies, used, wanted = super().cut(data)
        return bodies if self._one_piece else [whole(body) for body in bodies], used, wanted


def marshalled(part: Any, channel: int = CHANNEL) -> bytes:
    data: bytes = import_module("pamqp.frame").marshal(part, channel)
    return data


def body_head(size_bytes: int, properties: Any = None) -> bytes:
    """Return the header frame and the head of the first body frame. Without properties the message is transient."""
    header = import_module("pamqp.header").ContentHeader
    properties = properties or import_module("pamqp.commands").Basic.Properties()
    return marshalled(header(0, size_bytes, properties)) + frame_head(min(size_bytes, PIECE_BYTES))


def frame_head(size_bytes: int) -> bytes:
    return b"\x03" + CHANNEL.to_bytes(2, "big") + size_bytes.to_bytes(4, "big")


def in_frames(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return the payloads, in pieces if they need more than one frame; all are of one size."""
    if len(payloads[0]) <= PIECE_BYTES:
        return payloads
    return [in_pieces(payload) for payload in payloads]


def in_pieces(payload: bytes) -> bytes:
    """Return a payload with frame ends and heads between its pieces, but not around the whole."""
    pieces = [payload[at : at + PIECE_BYTES] for at in range(0, len(payload), PIECE_BYTES)]
    return pieces[0] + b"".join(FRAME_END + frame_head(len(one)) + one for one in pieces[1:])


def whole(body: bytes) -> bytes:
    """Return the payload of a body that `in_pieces` has made."""
    step = PIECE_BYTES + FRAME_HEAD_BYTES + len(FRAME_END)
    return b"".join(body[at : at + PIECE_BYTES] for at in range(0, len(body), step))


SYSTEMS = (RabbitMQRaw(),)
