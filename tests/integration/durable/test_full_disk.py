"""A disk that fills up under a running vhost, and what gives its space back.

On a memory disk with segments of 8 KiB, in virtual time; but for the clients'.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path

import pytest
import trio

from durable.broker.checkpoints import Checkpointer
from durable.broker.running_vhost import RunningVhost
from durable.config import BrokerConfig
from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.errors import StoreFull
from durable.log.bodies import RANGE, encode_acks
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Draft, Kind
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK, REJECT, REQUEUE
from durable.vhost import changes
from durable.vhost.checkpointing import Checkpointing
from tests.brokers import SMALL, client, drain, serving, take, until_told
from tests.integration.durable.test_too_large import declare, graves, make, publish, ready
from tests.ledger import Ledger, number_of, payload
from tests.power_cuts import CONFIG, run
from tests.vhosts import flushed, make_batch, snapshot_of
from tests.waiting import PATIENCE_S, until, virtual_sleep

SEGMENT = CONFIG.log.segment_bytes
VIRTUAL_PATIENCE_S = 100 * CONFIG.idle_s
AUDIT = StreamDefinition(name="audit")
SOME = 11
"""Messages that show that there is room again: to fill the disk once more takes most of a test."""


async def fill(
    hosted: RunningVhost, size_bytes: int = 1000, *, first: int = 0, slowly: bool = False,
    most: float = inf,
) -> int:  # fmt: skip
    """Publish to `jobs` until there is no room, slowly: with checkpoints; how many are confirmed."""
    for number in count():
        if number == most:
            return number
        try:
            await publish(hosted, make_batch(first + number, [bytes(size_bytes)], key="jobs"))
        except StoreFull:
            return number
        if slowly and number % 5 == 4:
            await virtual_sleep(CONFIG.idle_s)
    raise AssertionError("a disk without end")


async def settle(hosted: RunningVhost, name: str, outcome: str) -> None:
    """All that is ready; returns when that is on disk, but for copies of what was rejected."""
    queue, consumer = hosted.vhost.registry.queue(name), Consumer("c", prefetch=0, prefetch_bytes=0)
    queue.subscribe(consumer)
    queue.take(0)
    queue.settle(consumer, 0, consumer.next_tag, outcome)
    queue.unsubscribe(consumer, 0)
    await flushed(hosted)


async def ack_first(hosted: RunningVhost, acked: int) -> None:
    """So many of `jobs`, by a consumer that keeps the others; returns when that is on disk."""
    queue, consumer = (
        hosted.vhost.registry.queue("jobs"),
        Consumer("c", prefetch=0, prefetch_bytes=0),
    )
    queue.subscribe(consumer)
    queue.take(0)
    queue.settle(consumer, 0, acked, ACK)
    await flushed(hosted)


async def purge(hosted: RunningVhost) -> int:
    with trio.fail_after(VIRTUAL_PATIENCE_S):
        return await hosted.purge(hosted.vhost.registry.queue("jobs"))


async def until_space(hosted: RunningVhost) -> None:
    await until(lambda: not hosted.log.statistics().full, VIRTUAL_PATIENCE_S)


@pytest.mark.parametrize("consumed", [True, False])
async def test_clients_of_a_full_disk_are_refused_ack_and_go_on_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumed: bool
) -> None:
    """Whether space comes from what they consume, or from who has the disk to himself again."""
    volume = Volume(capacity_bytes=4 * SMALL.log.segment_bytes)
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: MemoryDisk(volume))
    ledger, numbers, padding = Ledger(), count(), bytes(30_000)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")

        async def confirm() -> None:
            number = next(numbers)
            await shop.publish("", "jobs", payload(number) + padding)
            ledger.confirmed.add(number)

        for _ in range(2):
            with pytest.raises(StoreFull, match=r"disk full: .* then send again"):
                while True:
                    await confirm()
            async with shop.consume("jobs", prefetch=10) as deliveries:
                settled: list[int] = []
                for _ in range(len(ledger.confirmed - ledger.settled) if consumed else 5):
                    (one,) = await take(deliveries, 1)
                    settled.append(number_of(one.payload[: -len(padding)]))
                    ledger.delivered(settled[-1])
                    await one.ack()
                await deliveries.synced()
                ledger.settled.update(settled)
            if not consumed:
                volume.capacity_bytes *= 2
            await until_told(shop, lambda told: not told["log"]["full"], PATIENCE_S)
            await confirm()
    async with serving(tmp_path) as broker, client(broker) as shop:
        for found in await drain(shop, "jobs"):
            ledger.delivered(number_of(found[: -len(padding)]))
    ledger.check()
    assert len(ledger.confirmed) > 100


def test_what_was_consumed_from_a_full_disk_makes_room_by_itself() -> None:
    """Found: a checkpoint was due after a segment, which could not be made, or 16 MiB of settlements:
    with everything consumed the broker refused what was published until it was restarted."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        for _ in range(3):
            published = await fill(hosted)
            assert published > 10
            await virtual_sleep(3 * CONFIG.idle_s)  # A checkpoint, from which nothing is freed.
            await settle(hosted, "jobs", ACK)
            await until_space(hosted)

    run(volume, life)


def test_cursors_take_no_reserve_from_acks() -> None:
    """Found: who stored one often enough used it up. No ack was taken any more, and no space came back."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        (lane,) = hosted.vhost.registry.new_lanes(AUDIT)
        await make(hosted, changes.STREAM, lane, to_plain(AUDIT))
        await fill(hosted)
        for number in range(SEGMENT // 50):
            with suppress(StoreFull):
                await make(hosted, changes.CURSOR, "audit", "billing", number)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(hosted, "jobs", ACK)
        await until_space(hosted)
        await make(hosted, changes.CURSOR, "audit", "billing", 1)

    run(volume, life)


def test_restarts_on_a_full_disk_take_no_reserve() -> None:
    """Found: each stop took a snapshot from it. After one or two there was no room for that which would
    have given space back, and with everything consumed nothing was taken any more, for good."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    ends: list[int] = []

    async def first(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        await fill(hosted)

    async def nothing(hosted: RunningVhost) -> None:
        ends.append(hosted.log.end)

    async def last(hosted: RunningVhost) -> None:
        await settle(hosted, "jobs", ACK)
        await until_space(hosted)
        assert await fill(hosted) > 10

    run(volume, first)
    for _ in range(3):
        run(volume, nothing)
    assert len(set(ends)) == 1
    run(volume, last)


def test_a_snapshot_gives_space_back_without_room_for_checkpoint_files() -> None:
    """Found: it was appended before its files failed: at first each second, later once in each life. Soon
    no ack was taken, and when there was room for files again, but not for a segment, there was none
    for a snapshot. Later found: without such room nothing that was consumed gave any space back."""
    log = replace(
        CONFIG.log, segment_bytes=1 << 16, reserve_bytes=1 << 13, compaction_share_max=0.0
    )
    config, segment = replace(CONFIG, log=log), log.segment_bytes
    volume = Volume(capacity_bytes=4 * segment + segment // 2)
    ends: list[int] = []

    async def first(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        for number in range(20):
            await declare(hosted, f"queue {number}")
        published = await fill(hosted)
        await ack_first(hosted, published // 2)
        volume.capacity_bytes = volume.used_bytes
        assert hosted.log.would_free(hosted.applied_end)
        await nothing(hosted)

    async def nothing(hosted: RunningVhost) -> None:
        await virtual_sleep(10 * CONFIG.idle_s)
        ends.append(hosted.log.end)
        assert not hosted.log.would_free(hosted.applied_end)

    async def last(hosted: RunningVhost) -> None:
        await settle(hosted, "jobs", ACK)
        await until_space(hosted)

    run(volume, first, config=config)
    for _ in range(3):
        run(volume, nothing, config=config)
    assert len(set(ends[1:])) == 1
    run(volume, last, config=config)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("idle", [False, True])
def test_a_snapshot_larger_than_the_reserve_makes_room_all_the_same(
    idle: bool, restarted: bool
) -> None:
    """Found: with so much declared that a snapshot outgrew the reserve, what was consumed from a full
    disk gave no space back, not even after a restart. And if nothing was consumed for a while, what is
    kept for a snapshot went to one that gave no space back."""
    log = replace(
        CONFIG.log, segment_bytes=1 << 16, reserve_bytes=1 << 11, compaction_share_max=0.0
    )
    config = replace(CONFIG, log=log)
    volume = Volume(capacity_bytes=4 * log.segment_bytes + log.segment_bytes // 2)

    async def first(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        for number in range(50):
            await declare(hosted, f"queue {number}")
        snapshot = sum(draft.size_bytes for draft in snapshot_of(hosted.vhost))
        assert snapshot > 2 * log.reserve_bytes
        await fill(hosted)
        with pytest.raises(StoreFull):  # Nor is there any for what gives space back.
            while True:
                hosted.log.append_nowait([Draft(Kind.MOVED, bytes(100))])
        if idle:
            await virtual_sleep(3 * CONFIG.idle_s)
        if not restarted:
            await last(hosted)

    async def last(hosted: RunningVhost) -> None:
        await settle(hosted, "jobs", ACK)
        with pytest.raises(StoreFull):  # What is kept for the snapshot is not for this.
            for _ in range(log.reserve_bytes // RANGE.size):
                hosted.vhost.change([[changes.QUEUE_GONE, ""]], 0)
        await until_space(hosted)
        assert await fill(hosted) > 10

    run(volume, first, config=config)
    if restarted:
        run(volume, last, config=config)


def test_a_snapshot_of_when_there_was_room_takes_nothing_from_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk is full when its files have been written: it gives nothing back, and another one will."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        checkpointer = Checkpointer(
            hosted,
            MemoryDisk(volume),
            Checkpointing(hosted.vhost.registry),
            BrokerConfig(checkpoint_bytes=1),
        )
        append = checkpointer._append_snapshot

        async def append_late(start: int, *, alone: bool) -> int | None:
            await fill(hosted)
            end = hosted.log.end
            snapshot = await append(start, alone=alone)
            assert hosted.log.end == end
            return snapshot

        monkeypatch.setattr(checkpointer, "_append_snapshot", append_late)
        await checkpointer.write()
        await settle(hosted, "jobs", ACK)
        await until_space(hosted)

    run(volume, life, config=replace(CONFIG, checkpoint_bytes=1 << 30))


@pytest.mark.parametrize("at_once", [8, 20, 1000])
@pytest.mark.parametrize("free_bytes_min", [1 << 13, 1 << 17])
def test_a_disk_that_others_fill_goes_on_with_what_is_consumed(
    free_bytes_min: int, at_once: int
) -> None:
    """Found: what the first snapshot gave back was less than a segment and `free_bytes_min`, as others had
    taken the rest. Then there was no room for another one, nor for acks, whatever was consumed."""
    log = replace(
        CONFIG.log, segment_bytes=1 << 16, reserve_bytes=1 << 12, free_bytes_min=free_bytes_min
    )
    config = replace(CONFIG, log=log)
    volume = Volume(capacity_bytes=8 * log.segment_bytes + free_bytes_min)
    published = size_bytes = 0

    async def first(hosted: RunningVhost) -> None:
        nonlocal published, size_bytes
        await declare(hosted, "jobs")
        for number in range(40):
            await declare(hosted, f"queue {number}")
        snapshot = sum(draft.size_bytes for draft in snapshot_of(hosted.vhost))
        assert snapshot > 2 * log.reserve_bytes
        published = await fill(hosted)
        await virtual_sleep(3 * CONFIG.idle_s)
        volume.capacity_bytes = volume.used_bytes + 2 * snapshot  # Room for files.
        assert volume.free_bytes < log.segment_bytes
        size_bytes = volume.used_bytes + snapshot

    async def consume(hosted: RunningVhost) -> None:
        queue = hosted.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            for tag in range(min(at_once, consumer.next_tag)):
                queue.settle(consumer, tag, tag + 1, ACK)
                await flushed(hosted)
                if at_once == 1000:
                    await virtual_sleep(CONFIG.idle_s / 4)
        queue.unsubscribe(consumer, 0)

    async def last(hosted: RunningVhost) -> None:
        assert await fill(hosted) > published // 2
        assert volume.used_bytes < size_bytes

    run(volume, first, config=config)
    for _ in range(0, published, at_once):
        run(volume, consume, config=config)
    run(volume, last, config=config)


def test_what_was_settled_last_on_a_full_disk_stays_settled() -> None:
    """Found: where the last checkpoint of all was left out, so was what had been settled in the turn
    before: it was delivered again after a restart."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    published = 0

    async def first(hosted: RunningVhost) -> None:
        nonlocal published
        await declare(hosted, "jobs")
        published = await fill(hosted)
        queue = hosted.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        queue.settle(consumer, 0, 1, ACK)
        assert not hosted.log.would_free(hosted.applied_end)

    async def again(hosted: RunningVhost) -> None:
        assert ready(hosted) == {"jobs": published - 1}

    run(volume, first)
    run(volume, again)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_rejected_on_a_full_disk_moves_when_there_is_room(restarted: bool) -> None:
    """Its copy needs room, and the copies of all are more than is kept for them; until then it is in neither
    queue, but on the disk, where a restart finds it."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    published = copied = 0

    async def life(hosted: RunningVhost) -> None:
        nonlocal published, copied
        await graves(hosted)
        published = await fill(hosted, 300)
        volume.capacity_bytes = volume.used_bytes
        await settle(hosted, "jobs", REJECT)
        await virtual_sleep(10 * CONFIG.idle_s)
        assert hosted.log.statistics().full
        copied = ready(hosted)["graves"]
        assert 0 < copied < published
        assert not ready(hosted)["jobs"]
        if not restarted:
            await moved(hosted)

    async def moved(hosted: RunningVhost) -> None:
        if restarted:
            assert ready(hosted) == {"graves": copied, "jobs": published - copied}
            await settle(hosted, "jobs", REJECT)
        volume.capacity_bytes *= 4
        await until(lambda: ready(hosted)["graves"] >= published, VIRTUAL_PATIENCE_S)
        assert ready(hosted) == {"graves": published, "jobs": 0}
        assert not hosted.batch_reader.lost

    run(volume, life)
    if restarted:
        run(volume, moved)


def test_what_is_rejected_now_and_then_leaves_no_disk_full() -> None:
    """Found: copies of what was rejected had no room, and their originals kept every segment: with all the
    rest consumed the broker refused what was published, whatever was done."""
    volume = Volume(capacity_bytes=8 * SEGMENT + SEGMENT // 2)

    async def life(hosted: RunningVhost) -> None:
        await graves(hosted)
        rejected = 0
        for _ in range(3):
            await fill(hosted, 300)
            queue = hosted.vhost.registry.queue("jobs")
            consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
            queue.subscribe(consumer)
            queue.take(0)
            published = consumer.next_tag
            assert published > 20
            for tag in range(published):
                queue.settle(consumer, tag, tag + 1, ACK if tag % 8 else REJECT)
            queue.unsubscribe(consumer, 0)
            hosted.pump_once()
            await until_space(hosted)
            rejected += len(range(0, published, 8))
            await until(lambda: ready(hosted)["graves"] == rejected, VIRTUAL_PATIENCE_S)
        assert not hosted.batch_reader.lost

    run(volume, life)


def test_a_purge_without_room_says_so_and_drops_nothing() -> None:
    """Found: all of it was gone from the queue, but not on the disk, and no answer came."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        published = await fill(hosted)
        with pytest.raises(StoreFull):  # The reserve has gone.
            while True:
                hosted.log.append_nowait([Draft(Kind.ACKS, encode_acks({}))])
        with pytest.raises(StoreFull):
            await purge(hosted)
        assert ready(hosted)["jobs"] == published
        volume.capacity_bytes *= 2
        await until_space(hosted)
        assert await purge(hosted) == published
        assert not ready(hosted)["jobs"]

    async def nothing_comes_back(hosted: RunningVhost) -> None:
        assert not ready(hosted)["jobs"]

    run(volume, life)
    run(volume, nothing_comes_back)


def test_a_purge_of_more_than_a_record_says() -> None:
    """Every other message is out, so that each of the rest is a range of its own."""
    volume, ranges = Volume(), 2 * SEGMENT // 4 // RANGE.size

    async def life(hosted: RunningVhost) -> None:
        await declare(hosted, "jobs")
        for number in range(0, 2 * ranges, 2):
            await publish(hosted, make_batch(number, [b"", b""], key="jobs"))
        queue = hosted.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        for tag in range(0, 2 * ranges, 2):
            queue.settle(consumer, tag, tag + 1, REQUEUE)
        await flushed(hosted)
        end = hosted.log.end
        assert await purge(hosted) == ranges
        assert hosted.log.end > end + 2
        assert await purge(hosted) == 0

    async def the_others_are_there(hosted: RunningVhost) -> None:
        assert ready(hosted)["jobs"] == ranges

    run(volume, life)
    run(volume, the_others_are_there)
