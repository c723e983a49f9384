"""The floors of systems that store: what a server says is cut wherever its pieces end, and counted."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import zmq

from bench.loops.blocking_loop import BlockingLoop
from bench.loops.loop import drive
from bench.systems import (
    SYSTEMS,
    jetstream_raw,
    mosquitto_qos1_raw,
    nng_raw,
    rabbitmq_durable_raw,
    rabbitmq_raw,
    raw_stored,
    redis_streams_raw,
    zeromq_raw,
)
from bench.systems.mosquitto_raw import publish_head
from bench.systems.raw_frames import FixedFrames, Frames
from bench.systems.system import Place
from bench.systems.zeromq_raw import GREETING, ready
from tests.unit.bench.test_raw_frames import PAYLOADS, SIZE_BYTES, assert_cut_anywhere, cut_all

NO_PAMQP = pytest.mark.skipif(find_spec("pamqp") is None, reason="no Python module pamqp")


def pieces(stream: bytes, seed: int) -> list[bytes]:
    """Of lengths that are no multiple of anything."""
    rng, at, found = random.Random(seed), 0, list[bytes]()
    while at < len(stream):
        length = rng.randrange(1, 60)
        found.append(stream[at : at + length])
        at += length
    return found


def each_way(make: Callable[[], Frames], stream: bytes) -> list[list[bytes]]:
    """What is cut out, of the whole and of pieces: always the same."""
    ways: list[Sequence[bytes]] = [[stream], [stream[at : at + 1] for at in range(len(stream))]]
    ways += [pieces(stream, seed) for seed in range(20)]
    return [cut_all(make(), way) for way in ways]


def test_jetstream_deliveries_answers_and_lines() -> None:
    stream = b"PING\r\n"
    for number, payload in enumerate(PAYLOADS):
        reply = f"$JS.ACK.bench.bench.1.{10**number}.{number}"
        stream += f"MSG bench 1 {reply} {SIZE_BYTES}\r\n".encode() + payload + b"\r\n"
        stream += b'MSG answers 2 7\r\n{"a":1}\r\n'
    told, lines = list[bytes](), list[bytes]()
    frames = jetstream_raw.MessageFrames(lines.append, told.append)
    assert cut_all(frames, [stream]) == PAYLOADS
    assert frames.reply == b"$JS.ACK.bench.bench.1.10000.4"
    assert told == [b'{"a":1}'] * len(PAYLOADS)
    assert lines == [b"PING"]
    assert_cut_anywhere(lambda: jetstream_raw.MessageFrames(lines.append, told.append), stream)


def test_redis_names_of_entries_are_their_confirms() -> None:
    names = [f"1763800000000-{10**number}".encode() for number in range(5)]
    stream = b"".join(b"$%d\r\n%s\r\n" % (len(name), name) for name in names)
    assert all(found == names for found in each_way(redis_streams_raw.NameFrames, stream))
    with pytest.raises(ConnectionError, match="OOM"):
        cut_all(redis_streams_raw.NameFrames(), [stream + b"-OOM no memory\r\n"])


def test_redis_reads_entries_with_names_of_different_lengths() -> None:
    def entry(name: str, payload: bytes) -> bytes:
        head = f"*2\r\n${len(name)}\r\n{name}\r\n*2\r\n$1\r\nd\r\n${SIZE_BYTES}\r\n"
        return head.encode() + payload + b"\r\n"

    names = [f"1763800000000-{10**number}" for number in range(5)]
    entries = [entry(name, payload) for name, payload in zip(names, PAYLOADS, strict=True)]
    head = redis_streams_raw.READ_HEAD
    stream = head + b"3\r\n" + b"".join(entries[:3]) + head + b"2\r\n" + b"".join(entries[3:])
    frames = redis_streams_raw.EntryFrames(SIZE_BYTES)
    assert cut_all(frames, [stream]) == PAYLOADS
    assert (frames.left, frames.last) == (0, names[-1])
    assert_cut_anywhere(lambda: redis_streams_raw.EntryFrames(SIZE_BYTES), stream)
    with pytest.raises(ValueError, match="not a delivery"):
        cut_all(redis_streams_raw.EntryFrames(SIZE_BYTES), [b"-ERR no such thing, really\r\n"])


def test_mqtt_deliveries_with_numbers_and_answers_between() -> None:
    head, answers = publish_head("topic", SIZE_BYTES, qos=1), list[int]()
    bodies = [number.to_bytes(2, "big") + one for number, one in enumerate(PAYLOADS, 300)]
    stream = b"\x40\x02\x00\x09".join(head + body for body in bodies)

    def make() -> Frames:
        return mosquitto_qos1_raw.NumberedFrames("topic", SIZE_BYTES, lambda: answers.append(1))

    assert cut_all(make(), [stream]) == bodies
    assert len(answers) == len(bodies) - 1
    assert all(found == bodies for found in each_way(make, stream))


def test_mqtt_answers_alone() -> None:
    answers = list[int]()
    stream = b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in range(700))
    frames = mosquitto_qos1_raw.AnswerFrames(lambda: answers.append(1))
    assert cut_all(frames, pieces(stream, 1)) == []
    assert len(answers) == 700


def test_nng_payloads_behind_their_lengths() -> None:
    head = SIZE_BYTES.to_bytes(8, "big")
    stream = b"".join(head + payload for payload in PAYLOADS)
    assert_cut_anywhere(lambda: FixedFrames(head, SIZE_BYTES, 0), stream)


def test_nng_greets_as_the_specification_has_it() -> None:
    """SP over TCP: zero, "SP", version zero, the number of the protocol, two zeros."""
    assert nng_raw.greeting(nng_raw.PUSH) == bytes.fromhex("00535000 0050 0000")
    assert nng_raw.greeting(nng_raw.PULL) == bytes.fromhex("00535000 0051 0000")


@pytest.mark.parametrize("size_bytes", [1, 255, 256, 70_000])
def test_libzmq_takes_what_zeromq_raw_sends(size_bytes: int) -> None:
    payloads = [bytes([number]) * size_bytes for number in range(3)]
    head = zeromq_raw.ZeroMQRaw().head(size_bytes)
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.rcvtimeo = 10_000
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        with socket.create_connection(("127.0.0.1", port)) as push:
            for own, other in ((GREETING, GREETING), (ready("PUSH"), ready("PULL"))):
                push.sendall(own)
                assert len(push.recv(len(other), socket.MSG_WAITALL)) == len(other)
            push.sendall(head + head.join(payloads))
            assert [pull.recv() for _ in payloads] == payloads


class InPieces(raw_stored.RawPublisher):
    """Of a protocol that cuts a payload in two."""

    def greet(self) -> None:
        return

    def frames(self) -> Frames:
        return FixedFrames(b"ok", 0, 0)

    def around(self) -> tuple[bytes, bytes]:
        return b"<", b">"

    def bodies(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        return [payload[:2] + b"|" + payload[2:] for payload in payloads]


def test_a_confirm_tells_of_the_payload_whatever_it_was_cut_into() -> None:
    written, replied = list[bytes](), list[bytes]()

    async def take(payloads: Sequence[bytes]) -> None:
        replied.extend(payloads)

    place = Place(ports=[], secret="", size_bytes=4, directory="")
    publisher = InPieces(place, BlockingLoop(), take)
    publisher.stream = SimpleNamespace(write=written.append)  # type: ignore[assignment]
    drive(publisher.request(b"abcd"))
    drive(publisher.took([b""]))
    assert written == [b"<ab|cd>"]
    assert replied == [b"abcd"]


@pytest.mark.parametrize(
    ("outstanding", "written"),
    [(1, [b"<a|>", b"<b|>", b"<c|>"]), (2, [b"<a|><b|>", b"<c|>"]), (3, [b"<a|><b|><c|>"])],
)
def test_no_more_is_written_than_may_be_unconfirmed(outstanding: int, written: list[bytes]) -> None:
    """Where each is to have a sync of its own, the next one leaves after the confirm of the one before."""
    done = list[bytes]()
    place = Place(ports=[], secret="", size_bytes=1, directory="")
    publisher = InPieces(place, BlockingLoop(), None)
    publisher.outstanding = outstanding

    def confirm() -> None:
        assert len(publisher._unconfirmed) <= outstanding
        done.append(b"confirm")
        drive(publisher.took([b""] * len(publisher._unconfirmed)))

    publisher.stream = SimpleNamespace(write=done.append, wait=confirm)  # type: ignore[assignment]
    drive(publisher.publish([b"a", b"b", b"c"]))
    drive(publisher.flush())
    assert done == [part for one in written for part in (one, b"confirm")]


def test_who_syncs_each_is_sent_one_at_a_time_unless_it_does_so_with_many() -> None:
    place = Place(ports=[], secret="", size_bytes=1, directory="")
    for name, count in [("redis-streams-raw", 2000), ("redis-streams-raw-each", 1),
                        ("rabbitmq-durable-raw-each", 1), ("rabbitmq-quorum-raw-each", 1),
                        ("jetstream-raw-each", 2000)]:  # fmt: skip
        producer = SYSTEMS[name].producer(place, BlockingLoop())
        assert isinstance(producer, raw_stored.RawPublisher)
        assert producer.outstanding == count


@NO_PAMQP
def test_amqp_queues_are_of_the_type_that_is_measured() -> None:
    for queue_type in ("classic", "quorum"):
        words = rabbitmq_durable_raw.declare(queue_type, **{"x-max-length-bytes": 7})
        assert words.arguments == {"x-queue-type": queue_type, "x-max-length-bytes": 7}


@NO_PAMQP
def test_amqp_confirms_one_by_one_and_of_all_up_to_one() -> None:
    basic = import_module("pamqp.commands").Basic
    acks = [basic.Ack(1), basic.Ack(2), basic.Ack(500, multiple=True), basic.Ack(501)]
    stream = b"".join(map(rabbitmq_raw.marshalled, acks))
    publisher = object.__new__(rabbitmq_durable_raw.Publisher)
    parts = cut_all(publisher.frames(), pieces(stream, 3))
    assert [publisher.confirmed([part]) for part in parts] == [1, 1, 498, 1]


@NO_PAMQP
def test_amqp_answers_between_deliveries_are_counted() -> None:
    commands = import_module("pamqp.commands")
    answer = rabbitmq_raw.marshalled(commands.Queue.DeclareOk("topic", 7, 1))
    properties = rabbitmq_durable_raw.properties()
    stream = answer
    for number, payload in enumerate(PAYLOADS):
        deliver = commands.Basic.Deliver(rabbitmq_raw.TAG, number, False, "", "topic")
        stream += rabbitmq_raw.marshalled(deliver)
        stream += rabbitmq_raw.body_head(SIZE_BYTES, properties) + payload + rabbitmq_raw.FRAME_END
        stream += answer
    made: list[rabbitmq_durable_raw.AnsweredFrames] = []

    def make() -> Frames:
        made.append(rabbitmq_durable_raw.AnsweredFrames("topic", SIZE_BYTES, properties))
        return made[-1]

    assert all(found == PAYLOADS for found in each_way(make, stream))
    assert {frames.answers for frames in made} == {len(PAYLOADS) + 1}
