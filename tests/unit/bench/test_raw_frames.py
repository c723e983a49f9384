"""Payloads are cut out of a stream wherever its pieces end. The oracle: what was put in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

import pytest

from bench.systems import activemq_raw, mosquitto_raw, nats_raw, rabbitmq_raw, redis_raw
from bench.systems.raw_frames import FixedFrames, Frames, GreetedFrames, LineFrames, varint

SIZE_BYTES = 40
PAYLOADS = [random.Random(number).randbytes(SIZE_BYTES) for number in range(5)]
NO_PAMQP = pytest.mark.skipif(find_spec("pamqp") is None, reason="no Python module pamqp")


def cut_all(frames: Frames, pieces: Sequence[bytes]) -> list[bytes]:
    """As `Stream` does it: nothing is cut before there is as much as was wanted."""
    found, data, wanted = list[bytes](), b"", 1
    for piece in pieces:
        data += piece
        while len(data) >= wanted:
            payloads, used, wanted = frames.cut(data)
            found += payloads
            data = data[used:]
    assert data == b""
    return found


def assert_cut_anywhere(make: Callable[[], Frames], stream: bytes) -> None:
    assert cut_all(make(), [stream]) == PAYLOADS
    assert cut_all(make(), [stream[at : at + 1] for at in range(len(stream))]) == PAYLOADS
    for at in range(1, len(stream)):
        assert cut_all(make(), [stream[:at], stream[at:]]) == PAYLOADS


def test_nats_with_lines_between() -> None:
    head = nats_raw.delivery_head("topic", SIZE_BYTES)
    stream = b"PING\r\n".join(head + payload + b"\r\n" for payload in PAYLOADS) + b"INFO {}\r\n"
    lines: list[bytes] = []
    frames = LineFrames(head, SIZE_BYTES, 2, lines.append)
    assert cut_all(frames, [stream]) == PAYLOADS
    assert lines == [b"PING"] * 4 + [b"INFO {}"]
    assert_cut_anywhere(lambda: LineFrames(head, SIZE_BYTES, 2, lines.append), stream)


def test_redis_whose_heads_are_of_several_lines() -> None:
    """Between deliveries: how many got what this connection published."""
    head = redis_raw.delivery_head("replies0", SIZE_BYTES)
    stream = b":1\r\n" + b":2\r\n".join(head + payload + b"\r\n" for payload in PAYLOADS)
    told: list[bytes] = []
    assert_cut_anywhere(lambda: LineFrames(head, SIZE_BYTES, 2, told.append), stream)
    assert set(told) == {b":1", b":2"}


def test_a_greeting_comes_first() -> None:
    greeting, head = b"hello", b"m"
    stream = greeting + b"".join(head + payload for payload in PAYLOADS)
    assert_cut_anywhere(lambda: GreetedFrames(greeting, FixedFrames(head, SIZE_BYTES, 0)), stream)
    with pytest.raises(ValueError, match="greets with b'howdy'"):
        GreetedFrames(greeting, FixedFrames(head, SIZE_BYTES, 0)).cut(b"howdy all")


def test_mqtt() -> None:
    head = mosquitto_raw.publish_head("topic", SIZE_BYTES)
    stream = b"".join(head + payload for payload in PAYLOADS)
    assert_cut_anywhere(lambda: FixedFrames(head, SIZE_BYTES, 0), stream)


def test_mqtt_lengths_are_of_seven_bits_a_byte() -> None:
    """The examples of section 2.2.3 of MQTT 3.1.1."""
    assert varint(127) == b"\x7f"
    assert varint(128) == b"\x80\x01"
    assert varint(16_384) == b"\x80\x80\x01"
    assert varint(2_097_151) == b"\xff\xff\x7f"


def test_stomp_with_numbers_that_grow_and_ends_of_lines_between() -> None:
    stream = b"".join(
        activemq_raw.frame("MESSAGE", f"message-id:{10**number}") + payload + b"\0" + b"\n" * number
        for number, payload in enumerate(PAYLOADS)
    )
    assert_cut_anywhere(lambda: activemq_raw.DeliveryFrames(SIZE_BYTES), stream)


@NO_PAMQP
@pytest.mark.parametrize("piece_bytes", [13, 20, SIZE_BYTES, 100])
def test_amqp_with_bodies_in_pieces(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(rabbitmq_raw, "PIECE_BYTES", piece_bytes)
    stream = b"".join(delivery(number, payload) for number, payload in enumerate(PAYLOADS))
    assert_cut_anywhere(lambda: rabbitmq_raw.DeliveryFrames("topic", SIZE_BYTES), stream)


def delivery(number: int, payload: bytes) -> bytes:
    """As pamqp has it, which cuts no bodies."""
    commands = import_module("pamqp.commands")
    deliver = commands.Basic.Deliver(rabbitmq_raw.TAG, number, number % 2 == 1, "", "topic")
    return (
        rabbitmq_raw.marshalled(deliver)
        + rabbitmq_raw.body_head(len(payload))
        + rabbitmq_raw.in_pieces(payload)
        + rabbitmq_raw.FRAME_END
    )


@NO_PAMQP
def test_amqp_bodies_are_frames_that_pamqp_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_raw, "PIECE_BYTES", 13)
    data, bodies = delivery(1, PAYLOADS[0]), []
    while data:
        used, _, part = import_module("pamqp.frame").unmarshal(data)
        bodies.append(getattr(part, "value", b""))
        data = data[used:]
    assert b"".join(bodies) == PAYLOADS[0]


@pytest.mark.parametrize(
    "frames", [FixedFrames(b"head", SIZE_BYTES, 1), activemq_raw.DeliveryFrames(SIZE_BYTES)]
)
def test_what_is_no_delivery_is_refused(frames: Frames) -> None:
    with pytest.raises(ValueError, match="not a delivery"):
        frames.cut(b"ERROR\nmessage:no\n\n")
