"""Logs to be read as captures: made without a broker, together with the messages that have to be read from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgpack

from durable.broker.directory import make_vhost
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition, StreamDefinition
from durable.log.bodies import batch_bytes, encode_acks, encode_definitions, move
from durable.log.committing import Write
from durable.log.config import LogConfig
from durable.log.encryption import Encryption
from durable.log.header import segment_name
from durable.log.real_disk import RealDisk
from durable.log.record import Draft, Kind, Target
from durable.protocol.properties import Properties, encode_properties
from durable.queues.settled import Settled
from durable.vhost import changes, cutting
from durable.vhost.groups import encode_group, is_spread
from mesh.protocol.batch import Batch, batch_pieces
from tests.logs import PUBLISHER, SMALL, PlainLog

T0_US = 1_750_000_000_000_000
SECOND_US = 1_000_000


class Message(NamedTuple):
    """A row of a capture, as far as tests compare it."""

    queue: str
    partition: int
    offset: int
    topic: str
    value: bytes
    sequence: int
    exchange: str
    time_us: int
    headers: tuple[tuple[str, bytes], ...]


class Captured:
    """A log that is being written, and every message that a reader has to find in it."""

    def __init__(
        self, data: Path, config: LogConfig = SMALL, store_id: bytes = b"s" * 16,
        encryption: Encryption | None = None,
    ) -> None:  # fmt: skip
        data.mkdir(exist_ok=True)
        self.data, self.config, self.store_id = data, config, store_id
        self.path = make_vhost(data, "/")
        self.log = self._opened(encryption)
        self.messages: list[Message] = []
        self._declared: list[list[Any]] = []
        self._lanes: dict[int, tuple[str, int]] = {}
        self._next: dict[int, int] = {}
        self._sequence = 0
        self.now_us = T0_US

    def _opened(self, encryption: Encryption | None) -> PlainLog:
        return PlainLog(
            RealDisk(self.path), self.config, store_id=self.store_id, encryption=encryption
        )

    def reopen(self, encryption: Encryption | None) -> None:
        """Reopen the log, as a broker that is restarted with another configuration."""
        self.log.close()
        self.log = self._opened(encryption)

    def cut_last(self) -> None:
        """Cut off the last record, as a power cut does with one that was not synced, and reopen the log."""
        self.log.close()
        file = max(one for one in self.path.glob("msgs.*") if any(one.read_bytes()))
        content = file.read_bytes()
        end = len(content.rstrip(b"\0"))
        file.write_bytes(content[: end - 40] + bytes(len(content) - end + 40))
        self._forget(lambda one: one.time_us == self.now_us)
        self.log = self._opened(None)

    def kill(self, written_bytes: int) -> None:
        """Write only so many bytes of the commit that has gathered, as a broker that is killed meanwhile."""
        commit = self.log.committer.begin(0.0)
        assert commit is not None
        (write,) = (step for step in commit.steps if isinstance(step, Write))
        with (self.path / segment_name(write.number)).open("r+b") as file:
            file.seek(write.at)
            file.write(b"".join(map(bytes, write.pieces))[:written_bytes])
        self.log.close()

    def restart(self, encryption: Encryption | None) -> None:
        """Reopen the log after `kill`, and forget the messages that are not in it."""
        end = self.log.committer.end
        self.log = self._opened(encryption)
        whole_us = self.now_us - (end - self.log.committer.end) * SECOND_US
        self._forget(lambda one: one.time_us > whole_us)

    def _forget(self, lost: Callable[[Message], bool]) -> None:
        numbers = {whose: lane for lane, whose in self._lanes.items()}
        while lost(self.messages[-1]):
            one = self.messages.pop()
            self._next[numbers[one.queue, one.partition]] = one.offset

    def backup(self, to: Path) -> Callable[[], None]:
        """Copy the directory; return a function that puts the copy back and reopens the log."""
        shutil.copytree(self.data, to)
        messages, following = self.messages.copy(), self._next.copy()

        def put_back() -> None:
            self.log.close()
            shutil.rmtree(self.data)
            shutil.copytree(to, self.data)
            self.messages, self._next = messages, following
            self.log = self._opened(None)

        return put_back

    def declare(self, name: str, *lanes: int, stream: bool = False) -> None:
        definition: list[Any]
        if stream:
            definition = [changes.STREAM, lanes[0], to_plain(StreamDefinition(name=name))]
        else:
            plain = to_plain(QueueDefinition(name=name, max_priority=len(lanes) - 1))
            definition = [changes.QUEUE, list(lanes), plain]
        self.define(definition)
        self._declared.append(definition)
        self._lanes.update({lane: (name, number) for number, lane in enumerate(lanes)})

    def delete(self, name: str) -> None:
        self.define([changes.QUEUE_GONE, name])
        self._declared = [one for one in self._declared if one[2]["name"] != name]
        self.messages = [one for one in self.messages if one.queue != name]

    def snapshot(self) -> int:
        """Write a snapshot, as a broker does before it frees segments; return its log position."""
        head = [changes.SNAPSHOT, max(self._lanes, default=0) + 1]
        settled = Settled().encode()
        ends = [[lane, self._next.get(lane, 0), settled] for lane in self._lanes]
        return self.define(head, *self._declared, [changes.LANES, ends], [changes.SNAPSHOT_END])

    def define(self, *found: Any) -> int:
        (position,) = self.log.write(Draft(Kind.DEFINITIONS, encode_definitions(list(found))))
        return position

    def publish(
        self, lanes: Sequence[int], values: Sequence[bytes], topic: str = "orders.eu", *,
        exchange: str = "", headers: Sequence[dict[str, Any]] | None = None,
        kind: Kind = Kind.PUBLISH, durable: bool = True, apart: bool = False,
        spread: bool = False,
    ) -> int:  # fmt: skip
        """Write a record for these lanes, a second after the one before; return its log position.

        Args:
            apart: each message is a batch of its own, with a topic of its own.
            spread: the batches' sequences are not adjacent, as if other messages had been published in between.
        """
        step = 1 + (apart and spread)
        self.now_us += SECOND_US
        targets = [Target(lane, self._next.get(lane, 0)) for lane in lanes]
        topics = [f"{topic}.{number % 3}" if apart else topic for number in range(len(values))]
        for lane, first in targets:
            name, partition = self._lanes[lane]
            self._next[lane] = first + len(values)
            for number, value in enumerate(values):
                self.messages.append(Message(
                    name, partition, first + number, topics[number], value, self._sequence + step * number, exchange,
                    self.now_us,
                    tuple((key, text.encode()) for key, text in headers[number].items()) if headers else (),
                ))  # fmt: skip
        parts = (
            [slice(one, one + 1) for one in range(len(values))] if apart else [slice(len(values))]
        )
        batches: list[Batch] = []
        for part in parts:
            pieces, _ = batch_pieces(
                PUBLISHER, 7, self._sequence, self.now_us - 10, topics[part][0].encode(), values[part],
                shared_headers=encode_properties(Properties(exchange=exchange)),
                message_headers=[msgpack.packb(one) for one in headers[part]] if headers else None,
            )  # fmt: skip
            batches.append(Batch(b"".join(pieces)))
            self._sequence += step * batches[-1].count
        body = encode_group(batches, None) if apart else batches[0].raw()
        draft = Draft(
            kind, body, targets, self.now_us, grouped=apart, spread=apart and is_spread(body)
        )
        (position,) = self.log.write(draft) if durable else self.log.append(draft)
        return position

    def settle(self, lane: int, start: int, end: int) -> None:
        self.log.write(Draft(Kind.ACKS, encode_acks({lane: [(start, end)]})))

    def carry(self, position: int, *lanes: int, without: Sequence[tuple[int, int]] = ()) -> int:
        """Append a record again, as compaction does, for some of its lanes and without some of its messages.

        Returns:
            the new log position.
        """
        (record,) = self.log.store.reader.read_some(position, self.log.committer.durable_end, 1)
        targets = [one for one in record.targets if one.queue in lanes]
        cut: bytes | None = None
        if without:
            cut = cutting.cut_settled(batch_bytes(record), without, captured=False)
            assert cut is not None, "it is worth it"
        (moved,) = self.log.write(move(record, targets, cut))
        return moved

    def free(self, *numbers: int) -> None:
        for number in numbers:
            (self.path / segment_name(number)).unlink()

    def segment_of(self, position: int) -> int:
        found = self.log.store.segments.find(position)
        assert found is not None
        return found.number

    def close(self) -> None:
        self.log.close()


def of_rows(rows: Iterable[dict[str, Any]]) -> list[Message]:
    """Return messages from rows of Arrow or Spark, as dictionaries."""
    return [
        Message(
            one["queue"], one["partition"], one["offset"], one["topic"], bytes(one["value"]),
            one["sequence"], one["exchange"], round(one["timestamp"].timestamp() * 1e6),
            tuple((pair["key"], bytes(pair["value"])) for pair in one.get("headers", ())),
        )
        for one in rows
    ]  # fmt: skip


def jobs_and_audit(data: Path, use: Encryption | None = None) -> Captured:
    """A log with a queue and a stream, lanes 1 and 2; `publish` writes to both."""
    captured = Captured(data, encryption=use)
    captured.declare("jobs", 1)
    captured.declare("audit", 2, stream=True)
    return captured


def publish(captured: Captured, count: int) -> list[int]:
    """Write `count` records of two messages, some with a batch for each; return their log positions."""
    return [
        captured.publish([1, 2], [b"%d" % number, b"x" * 50], apart=number % 4 == 3)
        for number in range(count)
    ]


def varied(
    data: Path, seed: int, records: int = 150, use: Sequence[Encryption | None] = (None,)
) -> Captured:
    """A log with all kinds of records, in segments of 4 KiB, a part of them with each `use`."""
    random, captured = Random(seed), Captured(data, encryption=use[0])
    captured.declare("jobs", 1, 2)
    captured.declare("audit", 3, stream=True)
    captured.declare("other", 4)
    for number in range(records):
        if number and number % (records // len(use)) == 0:
            captured.reopen(use[number * len(use) // records])
        count = random.choice([1, 1, 2, 5, 30])
        lanes = random.sample([1, 2, 3, 4], random.choice([1, 1, 2, 4]))
        values = [random.randbytes(random.choice([0, 1, 8, 20])) for _ in range(count)]
        with_headers = random.random() < 0.3
        captured.publish(
            lanes, values, random.choice(["orders.eu", "orders.us", "ä.b"]),
            exchange=random.choice(["", "amq.topic"]),
            headers=[{"n": str(one)} for one in range(count)] if with_headers else None,
            kind=random.choice([Kind.PUBLISH, Kind.CAPTURE]), apart=number % 3 == 1 and count < 10,
            spread=number % 6 == 1,
        )  # fmt: skip
        if random.random() < 0.1:
            captured.settle(1, number, number + 1)
    return captured


def compacted(data: Path, use: Encryption | None = None) -> Captured:
    """A log whose segments 1 and 2 can be freed: their messages are carried, some of them twice, some not at all."""
    captured = jobs_and_audit(data, use)
    positions = publish(captured, 60)
    for lane, every in ((1, 3), (2, 5)):
        for position in positions[::every]:
            if captured.segment_of(position) <= 2:
                captured.carry(position, lane)
    for position in positions[:6:3]:
        captured.carry(position, 1)
    captured.snapshot()
    return captured


def expected_of(captured: Captured, numbers: set[int]) -> list[Message]:
    """Return the messages to be found in a `compacted` log without these segments: others, and those carried."""
    found = []
    for one in captured.messages:
        number = one.sequence // 2
        every = 3 if one.queue == "jobs" else 5
        gone = captured.log.store.segments.find(3 + number).number in numbers  # type: ignore[union-attr]
        if not gone or number % every == 0:
            found.append(one)
    return found
