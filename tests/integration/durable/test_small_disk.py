"""A full disk on which compaction has little to go on with: few segments, encryption that came later, a low budget.

On a memory disk, in virtual time. The reserve is as small a part of a segment as by default.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio

from durable.broker.dead_lettering import LOOK_SHARE, _count_for_carrier
from durable.broker.running_vhost import RunningVhost
from durable.errors import StoreFull
from durable.log.header import spare_name
from durable.log.memory_disk import Volume
from durable.log.spares import CARRIER
from durable.queues.queue import ACK
from tests.integration.durable.test_carrier import Consuming, Copies, Fates
from tests.integration.durable.test_full_disk import (
    SOME,
    VIRTUAL_PATIENCE_S,
    fill,
    until_space,
)
from tests.integration.durable.test_too_large import declare, graves, publish, ready
from tests.logs import encryption
from tests.power_cuts import CONFIG, run
from tests.vhosts import make_batch
from tests.waiting import virtual_sleep

SEGMENT = 1 << 16
LOG = replace(CONFIG.log, segment_bytes=SEGMENT, reserve_bytes=1 << 10, compaction_share_max=0.25)
SMALL_DISK = replace(CONFIG, log=LOG)


@pytest.mark.parametrize("fates", [
    Fates(600, stays=0.3), Fates(600, stays=0.5, shuffled=True), Fates(600, stays=0.7, at_once=True),
    Fates(100, stays=0.5, shuffled=True), Fates(600, stays=0.5, rejected=0.1, shuffled=True),
    Fates(600, stays=0.3, rejected=0.3, shuffled=True), Fates(600, rejected=0.7, shuffled=True, at_once=True),
    Fates(600, stays=0.2, rejected=0.5, shuffled=True, copies_consumed=True),
])  # fmt: skip
@pytest.mark.parametrize("segments", [2, 3])
def test_what_stays_of_few_segments_keeps_no_disk_full(segments: int, fates: Fates) -> None:
    """Found: of two, publishes took three quarters of the second one, and what stayed of the first had no room in the
    rest. Of three, dead letters did."""
    volume = Volume(capacity_bytes=segments * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await graves(running)
        published = await fill(running, fates.size_bytes, slowly=True)
        stay, rejected = await Consuming(running).settle_each(fates, published, Random(1))
        copies, more = Copies(running, fates, rejected), 0
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            while not await copies.all_there() or more < SOME:
                await virtual_sleep(CONFIG.idle_s)
                first, most = published + more, SOME - more
                more += await fill(running, fates.size_bytes, first=first, most=most)
        assert running.vhost.registry.queue("jobs").unsettled == stay + SOME
        assert spare_name(CARRIER) not in volume.seen or segments > 2
        assert not running.batch_reader.lost

    run(volume, life, config=SMALL_DISK)


@pytest.mark.parametrize("shuffled", [False, True])
def test_dead_letters_that_are_nearly_all_there_is_do_not_wait_a_second_each(
    shuffled: bool,
) -> None:
    """Of three segments, all rejected: as many as there is room for in the third one, with all that is around them.

    Found: those rejected in any order, each of which is a range of its own, did wait.
    """
    volume = Volume(capacity_bytes=3 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await graves(running)
        published = await fill(running, 600)
        fates = Fates(600, rejected=1.0, shuffled=shuffled)
        await Consuming(running).settle_each(fates, published, Random(1))
        await virtual_sleep(10.0)
        assert ready(running)["graves"] * 600 > 3 * SEGMENT // 8

    run(volume, life, config=SMALL_DISK)


def test_dead_letters_with_long_headers_leave_the_carrier_to_compaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: how many may use it before another look was judged by their bodies, and they were ten times as large."""
    volume, counts = Volume(capacity_bytes=5 * SEGMENT + SEGMENT // 2), list[int]()

    def counted(*given: Any) -> int:
        counts.append(_count_for_carrier(*given))
        return counts[-1]

    monkeypatch.setattr("durable.broker.dead_lettering._count_for_carrier", counted)

    async def life(running: RunningVhost) -> None:
        await graves(running)
        published = 0
        with pytest.raises(StoreFull):
            while True:
                batch = make_batch(published, [b"x"], key="jobs", headers=[bytes(2000)])
                await publish(running, batch)
                published += 1
        fates = Fates(1, rejected=1.0, shuffled=True)
        await Consuming(running).settle_each(fates, published, Random(1))
        await virtual_sleep(10.0)
        lane = running.vhost.registry.queue("graves").lanes[0]
        run = lane.index.find(0)
        assert run is not None
        letter = (await running.log.read(run.position, 1))[0]
        letter_bytes = letter.header.total_bytes
        assert max(counts) > 0
        assert (max(counts) - 1) * letter_bytes < LOOK_SHARE * SEGMENT

    run(volume, life, config=SMALL_DISK)


def test_a_second_segment_is_for_publishes_where_nothing_is_carried_forward() -> None:
    volume = Volume(capacity_bytes=2 * SEGMENT + SEGMENT // 2)
    log = replace(LOG, compaction_share_max=0.0)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        assert await fill(running, 600, slowly=True) * 600 > 1.4 * SEGMENT

    run(volume, life, config=replace(SMALL_DISK, log=log))


def test_what_encryption_adds_is_counted_before_anything_is_carried_forward() -> None:
    """Found: plain records were carried forward until the carrier was full of a part of them, which freed nothing."""
    volume = Volume(capacity_bytes=5 * SEGMENT + SEGMENT // 2)
    left = 0

    async def plain(running: RunningVhost) -> None:
        nonlocal left
        await declare(running, "jobs")
        published = await fill(running, 40)
        assert spare_name(CARRIER) in volume.seen
        consuming = Consuming(running)
        for tag in range(0, published, 3):
            consuming.settle(tag, ACK)
        left = published - len(range(0, published, 3))

    async def encrypted(running: RunningVhost) -> None:
        carried = running.log.end
        await virtual_sleep(20 * CONFIG.idle_s)
        assert running.log.end == carried
        assert spare_name(CARRIER) in volume.seen
        consuming = Consuming(running)
        for tag in range(left):
            if tag % 2:
                consuming.settle(tag, ACK)
        await until_space(running)

    run(volume, plain, config=SMALL_DISK)
    run(volume, encrypted, config=SMALL_DISK, encryption=encryption())


def test_no_budget_delays_what_gives_space_back() -> None:
    """With one so low it would take a thousand seconds, and acks that come meanwhile take its room."""
    volume = Volume(capacity_bytes=5 * SEGMENT + SEGMENT // 2)
    slow = replace(LOG, compaction_bytes_per_s=SEGMENT // 1000)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        published = await fill(running, 600)
        await Consuming(running).settle_each(Fates(600, stays=0.5), published, Random(1))
        await until_space(running)

    run(volume, life, config=replace(SMALL_DISK, log=slow))
