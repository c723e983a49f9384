"""Two streams under load, one with confirms and one that captures, and what their readers know for certain.

    load.publish   ──confirmed──> audit ──┐
          `──────> ticks.* ─captured─> ticks ──> load.read, with a cursor: block after block

A message that the capturing stream does not have must be in a gap that is reported, or was on its way when a broker was
killed, or was published while no broker ran.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random

import trio

import durable
import mesh
from durable.client.connection import Connection
from durable.errors import BrokerLost
from mesh.waker import Bell
from tests.ledger import StreamLedger, number_of, payload
from tests.waiting import PATIENCE_S, until

TOPICS = ("ticks.eu", "ticks.us")
BURST, FLOOD, FLOOD_EVERY = 15, 300, 20
"""Messages of a topic at a time; every FLOOD_EVERY times more than may wait to be stored (`capture_bytes` of
the broker).
"""
KEPT = 500
"""Messages that `recent` keeps; the rest of the record with the oldest of them is kept, too."""
NUMBERS = 1 << 40
"""Distance between the number ranges of the streams and topics."""


class Captured:
    """One topic of a capturing stream: the numbers from `first` up to `next` were published."""

    def __init__(self, topic: str, first: int) -> None:
        self.topic, self.first, self.next = topic, first, first
        self.outages: list[tuple[int, int]] = []
        """Per outage: the first number published without a broker, and the first one after a new broker had subscribed.
        """
        self._began: int | None = None

    def outage_begins(self) -> None:
        self._began = self.next

    def outage_ends(self) -> None:
        assert self._began is not None
        self.outages.append((self._began, self.next))
        self._began = None

    def check(self, ledger: StreamLedger) -> int:
        """Check that every missing number is in a gap or an outage; return how many are in gaps."""
        numbers = range(self.first, self.next)
        expected, told, outages = self.first, 0, iter(self.outages)
        for _, (number, lost) in sorted(ledger.found.items()):
            if number not in numbers:
                continue
            assert number >= expected, "the order of a topic"
            untold_end = number - lost
            assert untold_end >= expected, "a gap tells of more than is missing"
            if untold_end > expected:  # Each such hole needs an outage of its own.
                spans = (
                    begin for begin in outages if expected <= begin[0] and untold_end <= begin[1]
                )
                assert next(spans, None), f"{expected} to {untold_end} are missing: {self.outages}"
            told, expected = told + lost, number + 1
        assert expected == self.next, "the last one was captured"
        return told


async def _take(records: durable.Records, ledger: StreamLedger, at: int | None) -> int:
    """Take the next batch and return the offset after it.

    Args:
        at: the offset that the batch must have; None: one at which the cursor may be.
    """
    batch = await records.take()
    if at is None:
        ledger.began(batch.tag)
    else:
        assert batch.tag == at, "no offset is left out"
    for index, data in enumerate(batch.payloads):
        ledger.read(batch.tag + index, number_of(data), 0 if index else batch.lost)
    return batch.end_tag


class StreamLoad:
    """The load. `confirmed` is woken for each confirmed part of `audit`, `kept` when a cursor is certainly on disk."""

    def __init__(self, node: mesh.Node, connection: Connection, seed: int) -> None:
        self._node, self._connection, self._random = node, connection, Random(seed)
        self.audit, self.ticks = StreamLedger(), StreamLedger()
        self.topics = [Captured(one, NUMBERS * (2 + at)) for at, one in enumerate(TOPICS)]
        self._next = NUMBERS
        self._steps = count(1)
        self.confirmed, self.kept = Bell(), Bell()
        self.parts = 0
        self.done = self.published = False

    async def declare(self) -> None:
        await self._connection.declare_stream("audit")
        await self._connection.declare_stream("ticks", patterns=("ticks.*",))
        await self._connection.declare_stream("recent", patterns=("ticks.*",), max_length=KEPT)
        for topic in TOPICS:
            await self._node.wait_subscribers(topic)

    def outage_begins(self) -> None:
        for one in self.topics:
            one.outage_begins()

    async def outage_ends(self, broker: bytes) -> None:
        """End the outage once this node knows that the broker, a node with this id, wants the topics."""

        async def captures() -> bool:
            found = [await self._node.wait_subscribers(one.topic, count=0) for one in self.topics]
            return all(broker in {one.node for one in members} for members in found)

        await until(captures, 60)
        for one in self.topics:
            one.outage_ends()

    def tick(self) -> None:
        """Publish some messages on each topic, whether or not a broker runs."""
        flood = next(self._steps) % FLOOD_EVERY == 0
        for one in self.topics:
            self._publish(one, FLOOD if flood else self._random.randrange(1, BURST))

    def _publish(self, topic: Captured, count: int) -> None:
        for _ in range(count):
            self._node.publish_nowait(topic.topic, payload(topic.next))
            topic.next += 1

    def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.publish)
        for stream in ("audit", "ticks"):
            nursery.start_soon(self.read, stream)

    async def publish(self) -> None:
        while not self.done:
            self.tick()
            numbers = range(self._next, self._next + self._random.randrange(1, BURST))
            self._next = numbers.stop
            await self._connection.publish_many("", "audit", [payload(one) for one in numbers])
            self.audit.confirmed.update(numbers)
            self.parts += 1
            self.confirmed.wake()
        self.published = True

    async def read(self, stream: str) -> None:
        """Read until cancelled, some batches in each block; a block goes on when its connection is lost."""
        ledger = self.audit if stream == "audit" else self.ticks
        while True:
            with suppress(BrokerLost):
                async with self._connection.read(
                    stream, start="first", cursor="billing"
                ) as records:
                    at: int | None = None
                    for _ in range(self._random.randrange(1, 20)):
                        at = await _take(records, ledger, at)
                        await records.store()
                        ledger.stored(at)
                ledger.kept()
                self.kept.wake()

    async def finish(self) -> None:
        """Stop publishing, and wait until everything published was read, for at most a minute."""
        self.done = True
        await until(lambda: self.published, 60)
        with trio.move_on_after(60):
            while not self._all_read():
                # A gap is reported with the message after it, which may be missing, too.
                for one in self.topics:
                    self._publish(one, 1)
                with trio.move_on_after(PATIENCE_S):
                    await until(self._all_read, 60)
            await until(lambda: not self.audit.missing, 60)

    def _all_read(self) -> bool:
        return all(one.next - 1 in self.ticks.numbers for one in self.topics)

    async def check(self) -> None:
        """Check, once all is published, that the streams from the first offset on are what their readers were given."""
        for stream, ledger in (("audit", self.audit), ("ticks", self.ticks)):
            assert await self._read_all(stream, ledger) == 0, "nothing goes by itself"
            ledger.check()
        numbers = [
            number for number, _ in (self.audit.found[at] for at in sorted(self.audit.found))
        ]
        assert numbers == sorted(numbers), "the order of publishing"
        assert numbers[-1] < self._next
        told = [one.check(self.ticks) for one in self.topics]
        assert all(told), "there was more than may wait"
        await self._check_recent()

    async def _check_recent(self) -> None:
        """Check that `recent` is the end of `ticks`, neither longer nor shorter than its limit allows."""
        recent = StreamLedger()
        start = await self._read_all("recent", recent)
        end = len(self.ticks.found)
        assert sorted(recent.found) == list(range(start, end)), "with the last one"
        assert KEPT <= len(recent.found) <= KEPT + FLOOD, "retention goes record by record"
        assert recent.found.items() <= self.ticks.found.items(), "both captured the same"

    async def _read_all(self, stream: str, ledger: StreamLedger) -> int:
        """Read the whole stream without a cursor; return its start."""
        there = (await self._connection.statistics())["streams"][stream]
        start, end = there["start"], there["end"]
        async with self._connection.read(stream, start=start) as records:
            at = start
            while at < end:
                at = await _take(records, ledger, at)
        return int(start)
