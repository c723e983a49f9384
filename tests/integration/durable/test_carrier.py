"""A full disk of which something of every segment stays: it is carried forward, and space comes back.

On a memory disk, in virtual time. What is acked is acked one by one, each on disk for itself, which takes many
times what is kept for acks.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
import trio

from durable.broker.running_vhost import RunningVhost
from durable.log.header import spare_name
from durable.log.memory_disk import Volume
from durable.log.placing import Backlog
from durable.log.spares import CARRIER
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK, REJECT
from tests.integration.durable.test_acks_without_end import Images, unsettled
from tests.integration.durable.test_full_disk import (
    SOME,
    VIRTUAL_PATIENCE_S,
    fill,
    settle,
    until_space,
)
from tests.integration.durable.test_too_large import declare, graves, ready
from tests.power_cuts import CONFIG, run
from tests.vhosts import flushed
from tests.waiting import until, virtual_sleep

SEGMENT = 1 << 14
LOG = replace(
    CONFIG.log, segment_bytes=SEGMENT, reserve_bytes=1 << 11, compaction_share_max=0.25
)  # fmt: skip
FULL = replace(CONFIG, log=LOG)


class Fates(NamedTuple):
    """What becomes of so large messages: shares of them."""

    size_bytes: int
    stays: float = 0.0
    rejected: float = 0.0
    shuffled: bool = False
    at_once: bool = False
    copies_consumed: bool = False


class Consuming:
    """A consumer of `jobs` that has all of it."""

    def __init__(self, running: RunningVhost) -> None:
        self._running = running
        self._queue = running.vhost.registry.queue("jobs")
        self._consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        self._queue.subscribe(self._consumer)
        self._queue.take(0)
        self._consumer.paused = True

    def settle(self, tag: int, outcome: str) -> None:
        self._queue.settle(self._consumer, tag, tag + 1, outcome)

    async def settle_each(self, fates: Fates, published: int, random: Random) -> tuple[int, int]:
        """How many stay, and how many are rejected."""
        dice = [random.random() for _ in range(published)]
        tags = [tag for tag in range(published) if dice[tag] >= fates.stays]
        if fates.shuffled:
            random.shuffle(tags)
        rejected = 0
        for tag in tags:
            reject = dice[tag] < fates.stays + fates.rejected
            rejected += reject
            self.settle(tag, REJECT if reject else ACK)
            if not reject and not fates.at_once:
                with trio.fail_after(VIRTUAL_PATIENCE_S):
                    await flushed(self._running)
        self._running.pump_once()
        return published - len(tags), rejected


class Copies:
    """The copies of what was rejected, consumed as they come if the fates say so."""

    def __init__(self, running: RunningVhost, fates: Fates, rejected: int) -> None:
        self._running, self._fates, self._rejected = running, fates, rejected
        self._consumed = 0

    async def all_there(self) -> bool:
        if self._fates.copies_consumed:
            self._consumed += ready(self._running)["graves"]
            await settle(self._running, "graves", ACK)
        return self._consumed + ready(self._running)["graves"] == self._rejected


@pytest.mark.parametrize("fates", [
    Fates(20, stays=0.05), Fates(20, stays=0.05, shuffled=True), Fates(20, stays=0.4),
    Fates(300, stays=0.4, at_once=True), Fates(20, rejected=0.1, shuffled=True),
    Fates(300, rejected=0.3), Fates(300, stays=0.2, rejected=0.2, shuffled=True),
    Fates(300, rejected=1.0, copies_consumed=True), Fates(20, rejected=1.0, copies_consumed=True),
    Fates(20, rejected=0.5, shuffled=True, copies_consumed=True),
    Fates(20, stays=0.7), Fates(300, stays=0.7, at_once=True), Fates(20, stays=0.7, shuffled=True),
    Fates(300, stays=0.5, rejected=0.2, shuffled=True), Fates(300, stays=0.3, rejected=0.3, shuffled=True),
    Fates(300, stays=0.35, rejected=0.65, shuffled=True, copies_consumed=True),
])  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_what_stays_of_every_segment_keeps_no_disk_full(fates: Fates, seed: int) -> None:
    """Found: acks of small messages took the room in which compaction would have freed the first segment, and
    copies of what was rejected were more than was kept for them."""
    volume = Volume(capacity_bytes=8 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await graves(running)
        published = await fill(running, fates.size_bytes, slowly=True)
        stay, rejected = await Consuming(running).settle_each(fates, published, Random(seed))
        copies = Copies(running, fates, rejected)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            while not await copies.all_there() or running.log.statistics().full:
                await virtual_sleep(CONFIG.idle_s)
        assert running.vhost.registry.queue("jobs").unsettled == stay
        assert not running.batch_reader.lost
        await until(lambda: running.log.backlog == Backlog(), VIRTUAL_PATIENCE_S)
        assert (
            await fill(running, fates.size_bytes, first=published, slowly=True, most=SOME) == SOME
        )

    run(volume, life, config=FULL)


def test_a_carrier_is_made_while_there_is_room_and_again_in_place_of_what_it_freed() -> None:
    """Found: spares that had become too small grew into the space of the segment that it had freed."""
    volume = Volume(capacity_bytes=6 * SEGMENT)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        published = await fill(running, 20, slowly=True)
        assert spare_name(CARRIER) in volume.seen
        volume.capacity_bytes = volume.used_bytes
        fates = Fates(20, stays=0.1, shuffled=True)
        await Consuming(running).settle_each(fates, published, Random(1))
        await until_space(running)
        await until(lambda: spare_name(CARRIER) in volume.seen, VIRTUAL_PATIENCE_S)

    run(volume, life, config=FULL)


def test_a_kill_or_a_power_cut_while_it_is_written_loses_nothing() -> None:
    """At each change to the disk from when it is taken until there is space again; and a fourth of them go on."""
    volume = Volume(capacity_bytes=5 * SEGMENT + SEGMENT // 2)
    images, published = Images(volume), 0

    async def life(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill(running, 100, slowly=True)
        volume.capacity_bytes = volume.used_bytes
        consuming = Consuming(running)
        for tag in range(published):
            if tag % 20:
                images.asked.add(tag)
                consuming.settle(tag, ACK)
                await flushed(running)
                images.acked.add(tag)
                if spare_name(CARRIER) not in volume.seen:
                    images.confirmed_end = lambda: running.log.durable_end
            if images.left and not running.log.statistics().full:
                break
        await until_space(running)

    async def look(running: RunningVhost) -> None:
        image.check_report(running.log.report)
        there = unsettled(running)
        assert not there & image.acked
        assert there >= set(range(published)) - image.asked
        if number % 4 == 0:
            await settle(running, "jobs", ACK)
            await until_space(running)
            assert await fill(running, 100, first=published, slowly=True, most=SOME) == SOME

    run(volume, life, images, FULL)
    assert images.left
    for number, image in enumerate(images.left):  # noqa: B007 (`look` reads them)
        run(image.volume, look, config=FULL)
