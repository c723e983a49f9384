"""A power cut at every change that a vhost makes to its disk which captures, retains and declares.

What is there for certain is there, at its offset, with what was missing before it; cursors and all that
was declared are as they were before or after the change that was cut off, whole imports included. Beside
test_power_cut.py, which is about queues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.log.memory_disk import Volume
from durable.vhost import changes
from durable.vhost.changes import Change
from durable.vhost.stream import Stream
from tests.ledger import payload
from tests.power_cuts import CONFIG, LOOKING, Cuts, ready_numbers, run, two_lives
from tests.vhosts import PUBLISHER, anybody, make_batch
from tests.waiting import virtual_sleep

SENSOR = b"s" * 16
ROUNDS = 10
KEPT = 60
PARTS = 4
"""The cuts are shared out to so many tests."""

Declared = list[str]


@dataclass
class Ledger:
    declared: list[Declared] = field(default_factory=lambda: [[]])
    """What may be declared, cursors included: the last answer, or what was asked for since."""
    sent: dict[str, dict[int, int]] = field(default_factory=dict)
    """By stream, numbers by offset."""
    certain: dict[str, set[int]] = field(default_factory=dict)
    """By stream, offsets of what is on disk."""
    gaps: dict[str, dict[int, int]] = field(default_factory=dict)
    """By stream, how many messages are missing before an offset; those before certain ones are."""


def declared(running: RunningVhost) -> Declared:
    """Not by what snapshots are made of."""
    registry = running.vhost.registry
    exchanges, bindings = registry.router.definitions()
    definitions: list[Definition] = [
        *exchanges,
        *bindings,
        *registry.permissions.definitions(),
        *(one.definition for one in registry.queues.values()),
        *(one.definition for one in registry.streams.values()),
    ]
    cursors = [
        f"{stream.name}: {cursor} at {offset}"
        for stream in registry.streams.values()
        for cursor, offset in stream.cursors.items()
    ]
    return sorted([*map(repr, definitions), *cursors])


async def contents(running: RunningVhost, stream: Stream) -> dict[int, int]:
    """Numbers by offset."""
    return {offset: number async for offset, number in ready_numbers(running, stream.lane)}


class Client:
    """Who publishes, declares and reads. Lives longer than the broker."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.next = {PUBLISHER: 0, SENSOR: 0}
        self.published: list[tuple[str, Any]] = []
        self._running: RunningVhost

    async def live(self, running: RunningVhost, rounds: range) -> None:
        self._running = running
        if not rounds.start:
            await self.declare_all()
        for number in rounds:
            for _ in range(2):
                await self.capture("t.eu", lost=2 * (number % 3 == 1))
                await self.publish("audit", 1 + number % 3)
                await self.publish("brief", 3)
            for name in ("audit", "brief"):
                at = running.vhost.registry.stream(name).end
                await self.change([changes.CURSOR, name, "billing", at])
            await self.declare_and_delete(number)
            # Retention, checkpoints and compaction begin in the same moment as the next round.
            await virtual_sleep(CONFIG.idle_s)

    async def declare_all(self) -> None:
        for name, patterns, kept in (("audit", ("t.>",), None), ("brief", ("t.*",), KEPT)):
            definition = StreamDefinition(name=name, patterns=patterns, max_length=kept)
            (lane,) = self._running.vhost.registry.new_lanes(definition)
            self.ledger.sent[name], self.ledger.gaps[name] = {}, {}
            self.ledger.certain[name] = set()
            await self.change([changes.STREAM, lane, to_plain(definition)])

    async def declare_and_delete(self, number: int) -> None:
        """An import of several things in one, permissions, cursors; and their ends."""
        name, registry = f"x{number}", self._running.vhost.registry
        exchange = ExchangeDefinition(name=name, type="topic", alternate="amq.fanout")
        queue = QueueDefinition(name=name, max_priority=2, ttl_s=5)
        binding = BindingDefinition(exchange=name, destination=name, key="a.#")
        permission = PermissionDefinition(
            cluster="shop", configure=f"mesh.*|{name}", read=name, capture=f"{name}.*"
        )
        await self.change(
            [changes.EXCHANGE, to_plain(exchange)],
            [changes.QUEUE, registry.new_lanes(queue), to_plain(queue)],
            [changes.BIND, to_plain(binding)],
            *changes.permission(permission),
        )
        await self.change([changes.CURSOR, "audit", name, number])
        if number % 4 == 3:
            await self.change([changes.PERMISSION_GONE, "shop"])
        if number % 2:
            await self.change([changes.UNBIND, to_plain(binding)])
            await self.change([changes.EXCHANGE_GONE, name])
            await self.change([changes.CURSOR, "audit", name, None])
        elif number % 4:  # The others stay, bound.
            await self.change([changes.QUEUE_GONE, name])

    async def change(self, *wanted: Change) -> None:
        running, ledger = self._running, self.ledger

        def change() -> int:
            position = running.vhost.change(wanted, running.clock.now_us())
            ledger.declared.append(declared(running))
            return position

        if wanted[0][0] == changes.CURSOR:
            position = await running.log.with_room(change)
        else:  # Not while a snapshot is made.
            async with running.change_writer.gate.shared():
                position = await running.log.with_room(change)
        await running.log.wait_durable(position)
        del ledger.declared[:-1]

    async def capture(self, topic: str, lost: int) -> None:
        """Into both streams, with what was lost on the way."""
        running, ledger = self._running, self.ledger
        first = self.next[SENSOR] + lost
        numbers = range(10_000 + first, 10_000 + first + 3)
        batch = make_batch(first, list(map(payload, numbers)), key=topic, publisher=SENSOR)
        self.next[SENSOR] = batch.next_sequence
        for stream in running.vhost.registry.streams.values():
            at = stream.lane.next
            ledger.sent[stream.name].update(zip(range(at, at + 3), numbers, strict=True))
            if lost:
                ledger.gaps[stream.name][at] = lost
        await running.log.with_room(
            lambda: running.vhost.capture(batch, lost, running.clock.now_us())
        )
        await self.stored()

    async def publish(self, name: str, count: int) -> None:
        running, first = self._running, self.next[PUBLISHER]
        numbers = range(first, first + count)
        batch = make_batch(first, list(map(payload, numbers)), key=name)
        self.next[PUBLISHER] = batch.next_sequence
        at = running.vhost.registry.stream(name).lane.next
        self.ledger.sent[name].update(zip(range(at, at + count), numbers, strict=True))
        self.published.append((name, batch))
        await self.send(running, batch)
        await self.stored()

    async def send(self, running: RunningVhost, batch: Any) -> None:
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        await running.log.with_room(
            lambda: running.vhost.intake.publish(
                publisher, [batch], anybody, running.clock.now_us()
            )
        )
        running.wake()
        await running.log.wait_durable(running.log.end - 1)
        await virtual_sleep(0)

    async def stored(self) -> None:
        await self._running.log.wait_durable(self._running.log.end - 1)
        for name, sent in self.ledger.sent.items():
            self.ledger.certain[name] = set(sent)


@pytest.fixture(scope="module")
def story() -> tuple[Cuts[Ledger], Client]:
    volume, ledger = Volume(), Ledger()
    cuts, client = Cuts(volume, ledger, 1), Client(ledger)
    two_lives(volume, client.live, ROUNDS, cuts)
    return cuts, client


async def check(running: RunningVhost, ledger: Ledger) -> None:
    assert not any(gap.synced for gap in running.log.report.gaps), "no cut is a loss"
    assert declared(running) in ledger.declared
    registry = running.vhost.registry
    for name, sent in ledger.sent.items():
        if name not in registry.streams:
            assert not sent
            continue
        stream = registry.stream(name)
        found = await contents(running, stream)
        assert not running.batch_reader.lost
        assert found.items() <= sent.items(), "nothing is invented, nor elsewhere"
        kept = {offset for offset in ledger.certain[name] if offset >= stream.start}
        assert kept <= found.keys(), "what is certain"
        most = stream.definition.max_length
        assert not stream.start or (most and stream.end - stream.start >= most), "no more goes"
        gaps = {gap.offset: gap.missed.messages for gap in registry.gaps.of(stream.lane.id)}
        assert gaps.items() <= ledger.gaps[name].items()
        before = {at for at in ledger.gaps[name] if at in ledger.certain[name]}
        assert before <= gaps.keys(), "what is missing before them is known"


def test_the_scenario_does_what_it_is_for(story: tuple[Cuts[Ledger], Client]) -> None:
    cuts, client = story
    last = cuts.left[-1][0]
    segments = sorted({name for left, _ in cuts.left for name in left.seen if name[:4] == "msgs"})
    assert len(segments) > 4
    assert "checkpoint" in last.seen
    assert len(client.ledger.gaps["audit"]) > 4
    assert any(len(ledger.declared) > 1 for _, ledger in cuts.left)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_at_every_change_of_streams_and_definitions(
    story: tuple[Cuts[Ledger], Client], part: int
) -> None:
    cuts, client = story
    for left, ledger in cuts.left[part::PARTS]:
        bare = left.copy()
        bare.seen.pop("checkpoint", None)

        async def first(running: RunningVhost, ledger: Ledger = ledger) -> None:
            await check(running, ledger)
            for name, batch in client.published:
                if name in running.vhost.registry.streams and batch.base_sequence in (
                    number for number in ledger.sent[name].values()
                ):
                    await client.send(running, batch)
            for name, sent in ledger.sent.items():
                if name in running.vhost.registry.streams:
                    stream = running.vhost.registry.stream(name)
                    numbers = list((await contents(running, stream)).values())
                    assert len(numbers) == len(set(numbers)), "stored twice"
                    if name == "audit":
                        mine = {one for one in sent.values() if one < 10_000}
                        assert mine <= set(numbers), "sent again, and not stored"

        run(bare, partial(check, ledger=ledger), config=LOOKING)
        run(left, first, config=LOOKING)
