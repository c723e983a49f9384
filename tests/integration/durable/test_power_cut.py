"""A power cut at every change that a whole vhost makes to its disk, against the ledger of its client.

Goal: what was confirmed is there, in order; what was settled for certain does not come back; nothing
is invented; what comes again is known. The scenario declares, publishes to several queues, acks, gives
back, dead-letters, deletes, and goes on until checkpoints are written and segments are compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from random import Random

import pytest

from durable.broker import cut_estimate
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import BindingDefinition, ExchangeDefinition, QueueDefinition
from durable.log.memory_disk import Folder, Volume
from durable.log.record import Buffer
from durable.protocol.properties import TTL_US_MAX, Properties
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK, REJECT, REQUEUE, Delivery
from durable.queues.ranges import Span
from durable.vhost import changes, cutting
from durable.vhost.changes import Change
from durable.vhost.groups import part_of
from mesh.protocol.batch import Batch
from tests.compactions import cut_at_any_price
from tests.ledger import number_of, payload
from tests.power_cuts import CONFIG, LOOKING, Cuts, Found, Ledger, run, two_lives
from tests.vhosts import PUBLISHER, anybody, batch_at, flushed, make_batch
from tests.waiting import virtual_sleep

SEEDS = 1
ROUNDS = 14
PARTS = 8
"""The cuts are shared out to so many tests."""


class Client:
    """A publisher and a consumer, and their ledger. Lives longer than the broker."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.random = ledger, Random(1)
        self.batches: list[Batch] = []
        self._running: RunningVhost

    async def live(self, running: RunningVhost, rounds: range) -> None:
        """Some rounds of everything."""
        self._running = running
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        running.attach_publisher(publisher, self)
        if not self.ledger.declared:
            await self.declare()
        for number in rounds:
            for exchange, keys in (("both", ("jobs", "kept")), ("", ("jobs",)), ("", ("gone",))):
                await self.publish(exchange, keys)
            if number % 2:
                await self.publish_in_turn(("jobs", "kept"))
            await self.work("jobs", self.random.randrange(3, 9))
            if number % 3 == 1:
                await self.work("dead", 2)
            if number % 4 == 2:
                await self.delete("gone")
                await self.make("gone")
            # Checkpoints and compaction begin in the same moment as the next round.
            await virtual_sleep(CONFIG.idle_s)

    # As its publisher session

    def confirm(self) -> None:
        publisher = self._running.vhost.publishers.get_or_add(PUBLISHER, 1)
        self.ledger.confirmed = publisher.confirmed

    def fail(self, error: Exception) -> None:
        raise error

    def replaced(self) -> None:
        """By the next life of the same publisher."""

    # What it does

    async def declare(self) -> None:
        for name in ("jobs", "kept", "dead", "gone"):
            await self.make(name)
        exchange = ExchangeDefinition(name="both", type="fanout")
        await self.change([changes.EXCHANGE, to_plain(exchange)])
        for name in ("jobs", "kept"):
            binding = BindingDefinition(exchange="both", destination=name)
            await self.change([changes.BIND, to_plain(binding)])

    async def make(self, name: str) -> None:
        ledger = self.ledger
        ledger.declared[name] = None
        ledger.sent[name] = []
        for known in (ledger.asked, ledger.settled):
            known[name] = set()
        definition = QueueDefinition(name=name)
        if name == "jobs":
            definition = QueueDefinition(
                name=name, dead_letter_exchange="", dead_letter_routing_key="dead"
            )
        lanes = self._running.vhost.registry.new_lanes(definition)
        await self.change([changes.QUEUE, lanes, to_plain(definition)])
        ledger.declared[name] = True

    async def delete(self, name: str) -> None:
        self.ledger.declared[name] = None
        await self._running.delete_queue(self._running.vhost.registry.queue(name), "a test")
        self.ledger.declared[name] = False

    async def change(self, change: Change) -> None:
        await self._running.change_writer.write(lambda: [change])

    async def publish(self, exchange: str, queues: tuple[str, ...]) -> None:
        """Two batches in one append; every other time they share a record."""
        first = self.batches[-1].next_sequence if self.batches else 0
        apart = bool(len(self.batches) // 2 % 2)
        batches: list[Batch] = []
        for count in (self.random.randrange(1, 4), 2):
            numbers = range(first, first + count)
            data = [payload(number) for number in numbers]
            ttl_us = TTL_US_MAX if apart and batches else None
            properties = Properties(exchange, ttl_us=ttl_us)
            batches.append(make_batch(first, data, key=queues[0], properties=properties))
            for name in queues:
                self.ledger.sent[name] += numbers
            first += count
        self.batches += batches
        await self.send(batches)

    async def publish_in_turn(self, queues: tuple[str, ...]) -> None:
        """Two messages to each, one after the other: in a record for each queue, in one append."""
        first = self.batches[-1].next_sequence
        batches = [
            make_batch(number, [payload(number)], key=name)
            for number, name in enumerate(queues * 2, first)
        ]
        for batch in batches:
            self.ledger.sent[batch.topic].append(batch.base_sequence)
        self.batches += batches
        await self.send(batches)

    async def send(self, batches: list[Batch]) -> None:
        running, end = self._running, batches[-1].next_sequence
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        await running.log.with_room(
            lambda: running.vhost.intake.publish(
                publisher, batches, anybody, running.clock.now_us()
            )
        )
        running.wake()
        while publisher.confirmed < end:
            await running.messages_durable.wait()

    async def work(self, name: str, count: int) -> None:
        """Take some; most are acked, some given back, some rejected, some kept."""
        running, ledger = self._running, self.ledger
        queue = running.vhost.registry.queue(name)
        returned: list[int] = []
        acked: list[int] = []
        for _ in range(count):
            consumer = Consumer("c", prefetch=1, prefetch_bytes=0)
            queue.subscribe(consumer)
            delivery = next(iter(queue.take(running.clock.now_us())), None)
            if delivery is None:
                queue.unsubscribe(consumer, running.clock.now_us())
                break
            number = await self.number(delivery)
            what = self.random.choice((ACK, ACK, ACK, REQUEUE, REQUEUE, REQUEUE, REJECT, None))
            if what == REQUEUE and name == "jobs":
                ledger.returned[number] = ledger.returned.get(number, 0) + 1
                returned.append(number)
            elif what == REJECT and name == "jobs":
                ledger.asked[name].add(number)
                ledger.rejected.add(number)
            elif what is not None:
                what = ACK
                ledger.asked[name].add(number)
                acked.append(number)
            if what is not None:
                queue.settle(consumer, delivery.tag, delivery.tag + 1, what)
                queue.unsubscribe(consumer, running.clock.now_us())
                running.wake(queue)
        if self.random.randrange(3):
            await flushed(running)
            ledger.settled[name].update(acked)
            ledger.returned_for_certain.update({one: ledger.returned[one] for one in returned})

    async def number(self, delivery: Delivery) -> int:
        found = await batch_at(self._running, delivery.lane, delivery.first)
        assert found is not None
        batch, first = found
        (data,) = part_of(batch, first, delivery.first, delivery.first + 1).payloads
        return number_of(data)

    async def send_again(self, running: RunningVhost, batches: list[Batch]) -> None:
        """As a publisher does that was never answered."""
        self._running = running
        running.attach_publisher(running.vhost.publishers.open(PUBLISHER, 1, 0), self)
        for batch in batches:
            await self.send([batch])


def cut(body: Buffer, settled: Sequence[Span], *, captured: bool) -> bytes | None:
    """Of three batches in four, worth it or not."""
    with cut_at_any_price() if len(body) // 16 % 4 else nullcontext():
        return cutting.cut_settled(body, settled, captured=captured)


@contextmanager
def cutting_records() -> Iterator[list[bytes | None]]:
    """What compaction makes of those of which a part is settled."""
    made: list[bytes | None] = []

    def noting(body: Buffer, settled: Sequence[Span], *, captured: bool) -> bytes | None:
        made.append(cut(body, settled, captured=captured))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut_estimate, "cut_settled", noting)
        yield made


@pytest.fixture(scope="module")
def story() -> tuple[Cuts[Ledger], Client]:
    volume, ledger = Volume(), Ledger()
    cuts, client = Cuts(volume, ledger, SEEDS), Client(ledger)
    with cutting_records() as made:
        two_lives(volume, client.live, ROUNDS, cuts)
    assert len([one for one in made if one is not None]) > 10
    assert None in made
    return cuts, client


def test_the_scenario_does_what_it_is_for(story: tuple[Cuts[Ledger], Client]) -> None:
    """Or the cuts would be of nothing much; and it is the same each time."""
    cuts, client = story
    ledger = client.ledger
    names = {name for left, _ in cuts.left for name in left.seen}
    segments = sorted(name for name in names if name.startswith("msgs."))
    assert len(segments) > 8
    assert segments[0] not in cuts.left[-1][0].seen, "segments have been freed"
    assert any(left.folders.seen.get("queues") for left, _ in cuts.left), "checkpoints"
    assert ledger.rejected
    assert ledger.returned_for_certain
    assert all(ledger.settled[name] for name in ("jobs", "dead"))
    again = Cuts(volume := Volume(), Ledger(), 0)
    with cutting_records():
        two_lives(volume, Client(again._ledger).live, ROUNDS, again)
    assert again.changes == cuts.changes
    assert again._ledger == ledger


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_at_every_change_of_a_vhost(
    story: tuple[Cuts[Ledger], Client], part: int
) -> None:
    cuts, client = story
    for left, ledger in cuts.left[part::PARTS]:
        check(left, ledger, client)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["ack", "enq"])
def test_power_cut_and_one_file_of_each_queue_damaged(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Found: of a lane of which a snapshot leaves out what is settled, as it does more than 64 KiB of it, all of
    that came again without its `ack`."""
    monkeypatch.setattr("durable.vhost.snapshot.SETTLED_BYTES_MAX", 0)
    monkeypatch.setattr("durable.vhost.snapshot.RETURNS_MAX", 1)
    volume, ledger = Volume(), Ledger()
    cuts, client = Cuts(volume, ledger, SEEDS), Client(ledger)
    two_lives(volume, client.live, ROUNDS, cuts)
    damaged = 0
    for left, known in cuts.left[::3]:
        for folder in left.folders.seen.get("queues", Folder()).folders.seen.values():
            if name in folder.seen and folder.seen[name].seen:
                folder.seen[name].seen[-1] ^= 1
                damaged += 1
        check(left, known, client)
    assert damaged > 100


def check(left: Volume, ledger: Ledger, client: Client) -> None:
    """What a start finds is what the client knows; what comes again then is known, or new."""
    bare = left.copy()
    bare.seen.pop("checkpoint", None)
    found: list[Found] = []
    sent = set().union(*ledger.sent.values())

    async def look(running: RunningVhost) -> Found:
        assert not any(gap.synced for gap in running.log.report.gaps), "no cut is a loss"
        return await Found.of(running)

    async def first(running: RunningVhost) -> None:
        found.append(await look(running))
        ledger.check(found[0])
        await client.send_again(
            running, [one for one in client.batches if one.base_sequence in sent]
        )
        found.append(await Found.of(running))

    async def without_checkpoints(running: RunningVhost) -> None:
        ledger.check(await look(running))

    async def second(running: RunningVhost) -> None:
        found.append(await look(running))

    for volume, life in ((bare, without_checkpoints), (left, first), (left, second)):
        run(volume, life, config=LOOKING)
    before, resent, after = (one.contents for one in found)
    assert after == resent, "a regular stop changes nothing"
    for name, numbers in resent.items():
        assert numbers[: len(before[name])] == before[name], "nothing goes"
        assert len(numbers) == len(set(numbers)), f"sent again, and stored twice in {name}"
        if name == "kept":
            assert set(numbers) >= set(ledger.sent[name]), "sent again, and not stored"
