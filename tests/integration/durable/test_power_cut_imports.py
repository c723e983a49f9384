"""A power cut at every change to the disk while whole imports go on, a few entries at a time.

Goal: of each import all is there or nothing, all once it was answered; what is published meanwhile and
confirmed is there; and what was declared while an import went on, too.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio

from durable.broker.defining import apply_import
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.log.memory_disk import Volume
from durable.vhost import changes
from mesh.nursery import open_nursery
from tests.ledger import payload
from tests.power_cuts import CONFIG, LOOKING, Cuts, ready_numbers, run, two_lives
from tests.vhosts import PUBLISHER, AnyStreams, anybody, make_batch
from tests.waiting import virtual_sleep

IMPORTS = 6
QUEUES = 4


@dataclass
class Known:
    """What the client knows for certain."""

    imports: dict[int, bool] = field(default_factory=dict)
    """Asked for; whether it was answered."""
    declared: dict[str, bool] = field(default_factory=dict)
    sent: int = 0
    confirmed: int = 0

    def check(self, running: RunningVhost, kept: list[int]) -> None:
        registry = running.vhost.registry
        _, bindings = registry.router.definitions()
        for number, answered in self.imports.items():
            wanted = asked(number)
            found = [one for one in wanted.queues if one.name in registry.queues]
            bound = [one for one in wanted.bindings if one in bindings]
            streams = [one for one in wanted.streams if one.name in registry.streams]
            whole = len(found), len(bound), len(streams)
            everything = len(wanted.queues), len(wanted.bindings), len(wanted.streams)
            assert whole in ((0, 0, 0), everything), f"half of import {number}: {whole}"
            assert whole == everything or not answered, f"import {number} is gone"
        for name, answered in self.declared.items():
            assert name in registry.queues or not answered, name
        assert kept == list(range(len(kept))), "in order, with nothing left out"
        assert self.confirmed <= len(kept) <= self.sent


def asked(number: int) -> Definitions:
    """Each brings queues, a stream, an exchange, and bindings from that and from one that was there."""
    queues = tuple(QueueDefinition(name=f"q{number}.{n}") for n in range(QUEUES))
    exchanges = (ExchangeDefinition(name=f"x{number}", type="topic"),)
    return Definitions(
        queues=queues, exchanges=exchanges,
        streams=(StreamDefinition(name=f"s{number}", patterns=("t.>",)),),
        bindings=tuple(
            BindingDefinition(exchange=exchange, destination=queue.name, key="#")
            for exchange in ("amq.topic", f"x{number}") for queue in queues
        ),
    )  # fmt: skip


class Client:
    """Imports, while a publisher and somebody else who declares go on."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._running: RunningVhost

    def confirm(self) -> None:
        publisher = self._running.vhost.publishers.get_or_add(PUBLISHER, 1)
        self.known.confirmed = publisher.confirmed

    def fail(self, error: Exception) -> None:
        raise error

    def replaced(self) -> None:
        """By the next life."""

    async def live(self, running: RunningVhost, rounds: range) -> None:
        self._running = running
        running.attach_publisher(running.vhost.publishers.open(PUBLISHER, 1, 0), self)
        await self.declare("kept")
        for number in rounds:
            async with open_nursery() as nursery:
                nursery.start_soon(self.publish)
                nursery.start_soon(self.declare, f"d{number}")
                await self.apply_import(number)
                nursery.cancel_scope.cancel()
            # Checkpoints and compaction begin in the same moment as the next round.
            await virtual_sleep(CONFIG.idle_s)

    async def apply_import(self, number: int) -> None:
        self.known.imports[number] = False
        peer = Peer("shop", self._running.vhost.registry.permissions, b"s" * 16)
        await apply_import(self._running, peer, ("/", asked(number)), AnyStreams)
        self.known.imports[number] = True

    async def declare(self, name: str) -> None:
        """Shielded: whoever imports is done first, and this one goes on then."""
        with trio.CancelScope(shield=True):
            queue, registry = QueueDefinition(name=name), self._running.vhost.registry
            self.known.declared.setdefault(name, False)
            if name not in registry.queues:
                await self._running.change_writer.write(
                    lambda: [[changes.QUEUE, registry.new_lanes(queue), to_plain(queue)]]
                )
            self.known.declared[name] = True

    async def publish(self) -> None:
        """One message a turn, each in a record of its own."""
        running = self._running
        publisher = running.vhost.publishers.open(PUBLISHER, 1, 0)
        while True:
            batch = make_batch(self.known.sent, [payload(self.known.sent)], key="kept")
            self.known.sent += 1
            now_us = running.clock.now_us()
            with trio.CancelScope(shield=True):  # Else one that waits for room would be left out.
                await running.log.with_room(
                    partial(running.vhost.intake.publish, publisher, [batch], anybody, now_us)
                )
            running.wake()
            for _ in range(3):
                await trio.lowlevel.checkpoint()


@pytest.fixture(scope="module")
def story() -> Cuts[Known]:
    known = Known()
    cuts = Cuts(volume := Volume(), known, 1)
    two_lives(volume, Client(known).live, IMPORTS, cuts)
    return cuts


def test_the_scenario_does_what_it_is_for(story: Cuts[Known]) -> None:
    """Changes come while imports are half made, and the log goes over several segments."""
    known = [ledger for _, ledger in story.left]
    assert known[-1].imports == dict.fromkeys(range(IMPORTS), True)
    assert sum(False in one.imports.values() for one in known) > 3 * IMPORTS
    during = {
        number: {one.confirmed for one in known if one.imports.get(number) is False}
        for number in range(IMPORTS)
    }
    assert all(len(confirmed) > 1 for confirmed in during.values()), "publishes went on"
    names = {name for left, _ in story.left for name in left.seen}
    assert len([name for name in names if name.startswith("msgs.")]) > 4
    assert any("checkpoint" in left.seen for left, _ in story.left)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_power_cut_at_every_change_of_imports(story: Cuts[Known]) -> None:
    for left, known in story.left:
        bare = left.copy()
        bare.seen.pop("checkpoint", None)
        for volume in (bare, left):
            run(volume, partial(look, known=deepcopy(known)), config=LOOKING)


async def look(running: RunningVhost, known: Known) -> None:
    kept: list[int] = []
    if "kept" in running.vhost.registry.queues:
        lane = running.vhost.registry.queue("kept").lanes[0]
        kept = [number async for _, number in ready_numbers(running, lane)]
    known.check(running, kept)
