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
from tests.vhosts import flushed, make_batch, settle_ready, snapshot_of
from tests.waiting import PATIENCE_S, until, virtual_sleep

SEGMENT = CONFIG.log.segment_bytes
VIRTUAL_PATIENCE_S = 100 * CONFIG.idle_s
AUDIT = StreamDefinition(name="audit")
SOME = 11
"""Messages that show that there is room again: to fill the disk once more takes most of a test."""


async def fill(
    running: RunningVhost, size_bytes: int = 1000, *, first: int = 0, slowly: bool = False,
    most: float = inf,
) -> int:  # fmt: skip
    """Publish to `jobs` until there is no room, slowly: with checkpoints; how many are confirmed."""
    for number in count():
        if number == most:
            return number
        try:
            await publish(running, make_batch(first + number, [bytes(size_bytes)], key="jobs"))
        except StoreFull:
            return number
        if slowly and number % 5 == 4:
            await virtual_sleep(CONFIG.idle_s)
    raise AssertionError("a disk without end")


async def settle(running: RunningVhost, name: str, outcome: str) -> None:
    """All that is ready; returns when that is on disk, but for copies of what was rejected."""
    settle_ready(running.vhost.registry.queue(name), outcome)
    await flushed(running)


async def ack_first(running: RunningVhost, acked: int) -> None:
    """So many of `jobs`, by a consumer that keeps the others; returns when that is on disk."""
    queue, consumer = (
        running.vhost.registry.queue("jobs"),
        Consumer("c", prefetch=0, prefetch_bytes=0),
    )
    queue.subscribe(consumer)
    queue.take(0)
    queue.settle(consumer, 0, acked, ACK)
    await flushed(running)


async def purge(running: RunningVhost) -> int:
    with trio.fail_after(VIRTUAL_PATIENCE_S):
        return await running.purge(running.vhost.registry.queue("jobs"))


async def until_space(running: RunningVhost) -> None:
    await until(lambda: not running.log.statistics().full, VIRTUAL_PATIENCE_S)


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

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for _ in range(3):
            published = await fill(running)
            assert published > 10
            await virtual_sleep(3 * CONFIG.idle_s)  # A checkpoint, from which nothing is freed.
            await settle(running, "jobs", ACK)
            await until_space(running)

    run(volume, life)


def test_cursors_take_no_reserve_from_acks() -> None:
    """Found: who stored one often enough used it up. No ack was taken any more, and no space came back."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        (lane,) = running.vhost.registry.new_lanes(AUDIT)
        await make(running, changes.STREAM, lane, to_plain(AUDIT))
        await fill(running)
        for number in range(SEGMENT // 50):
            with suppress(StoreFull):
                await make(running, changes.CURSOR, "audit", "billing", number)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(running, "jobs", ACK)
        await until_space(running)
        await make(running, changes.CURSOR, "audit", "billing", 1)

    run(volume, life)


def test_restarts_on_a_full_disk_take_no_reserve() -> None:
    """Found: each stop took a snapshot from it. After one or two there was no room for that which would
    have given space back, and with everything consumed nothing was taken any more, for good."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    ends: list[int] = []

    async def first(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await fill(running)

    async def nothing(running: RunningVhost) -> None:
        ends.append(running.log.end)

    async def last(running: RunningVhost) -> None:
        await settle(running, "jobs", ACK)
        await until_space(running)
        assert await fill(running) > 10

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

    async def first(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for number in range(20):
            await declare(running, f"queue {number}")
        published = await fill(running)
        await ack_first(running, published // 2)
        volume.capacity_bytes = volume.used_bytes
        assert running.log.would_free(running.applied_end)
        await nothing(running)

    async def nothing(running: RunningVhost) -> None:
        await virtual_sleep(10 * CONFIG.idle_s)
        ends.append(running.log.end)
        assert not running.log.would_free(running.applied_end)

    async def last(running: RunningVhost) -> None:
        await settle(running, "jobs", ACK)
        await until_space(running)

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

    async def first(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for number in range(50):
            await declare(running, f"queue {number}")
        snapshot = sum(draft.size_bytes for draft in snapshot_of(running.vhost))
        assert snapshot > 2 * log.reserve_bytes
        await fill(running)
        with pytest.raises(StoreFull):  # Nor is there any for what gives space back.
            while True:
                running.log.append_nowait([Draft(Kind.MOVED, bytes(100))])
        if idle:
            await virtual_sleep(3 * CONFIG.idle_s)
        if not restarted:
            await last(running)

    async def last(running: RunningVhost) -> None:
        await settle(running, "jobs", ACK)
        with pytest.raises(StoreFull):  # What is kept for the snapshot is not for this.
            for _ in range(log.reserve_bytes // RANGE.size):
                running.vhost.change([[changes.QUEUE_GONE, ""]], 0)
        await until_space(running)
        assert await fill(running) > 10

    run(volume, first, config=config)
    if restarted:
        run(volume, last, config=config)


def test_a_snapshot_of_when_there_was_room_takes_nothing_from_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk is full when its files have been written: it gives nothing back, and another one will."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        checkpointer = Checkpointer(
            running,
            MemoryDisk(volume),
            Checkpointing(running.vhost.registry),
            BrokerConfig(checkpoint_bytes=1),
        )
        append = checkpointer._append_snapshot

        async def append_late(start: int, *, alone: bool) -> int | None:
            await fill(running)
            end = running.log.end
            snapshot = await append(start, alone=alone)
            assert running.log.end == end
            return snapshot

        monkeypatch.setattr(checkpointer, "_append_snapshot", append_late)
        await checkpointer.write()
        await settle(running, "jobs", ACK)
        await until_space(running)

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

    async def first(running: RunningVhost) -> None:
        nonlocal published, size_bytes
        await declare(running, "jobs")
        for number in range(40):
            await declare(running, f"queue {number}")
        snapshot = sum(draft.size_bytes for draft in snapshot_of(running.vhost))
        assert snapshot > 2 * log.reserve_bytes
        published = await fill(running)
        await virtual_sleep(3 * CONFIG.idle_s)
        volume.capacity_bytes = volume.used_bytes + 2 * snapshot  # Room for files.
        assert volume.free_bytes < log.segment_bytes
        size_bytes = volume.used_bytes + snapshot

    async def consume(running: RunningVhost) -> None:
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            for tag in range(min(at_once, consumer.next_tag)):
                queue.settle(consumer, tag, tag + 1, ACK)
                await flushed(running)
                if at_once == 1000:
                    await virtual_sleep(CONFIG.idle_s / 4)
        queue.unsubscribe(consumer, 0)

    async def last(running: RunningVhost) -> None:
        assert await fill(running) > published // 2
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

    async def first(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill(running)
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        queue.settle(consumer, 0, 1, ACK)
        assert not running.log.would_free(running.applied_end)

    async def again(running: RunningVhost) -> None:
        assert ready(running) == {"jobs": published - 1}

    run(volume, first)
    run(volume, again)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_rejected_on_a_full_disk_moves_when_there_is_room(restarted: bool) -> None:
    """Its copy needs room, and the copies of all are more than is kept for them; until then it is in neither
    queue, but on the disk, where a restart finds it."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    published = copied = 0

    async def life(running: RunningVhost) -> None:
        nonlocal published, copied
        await graves(running)
        published = await fill(running, 300)
        volume.capacity_bytes = volume.used_bytes
        await settle(running, "jobs", REJECT)
        await virtual_sleep(10 * CONFIG.idle_s)
        assert running.log.statistics().full
        copied = ready(running)["graves"]
        assert 0 < copied < published
        assert not ready(running)["jobs"]
        if not restarted:
            await moved(running)

    async def moved(running: RunningVhost) -> None:
        if restarted:
            assert ready(running) == {"graves": copied, "jobs": published - copied}
            await settle(running, "jobs", REJECT)
        volume.capacity_bytes *= 4
        await until(lambda: ready(running)["graves"] >= published, VIRTUAL_PATIENCE_S)
        assert ready(running) == {"graves": published, "jobs": 0}
        assert not running.batch_reader.lost

    run(volume, life)
    if restarted:
        run(volume, moved)


def test_what_is_rejected_now_and_then_leaves_no_disk_full() -> None:
    """Found: copies of what was rejected had no room, and their originals kept every segment: with all the
    rest consumed the broker refused what was published, whatever was done."""
    volume = Volume(capacity_bytes=8 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await graves(running)
        rejected = 0
        for _ in range(3):
            await fill(running, 300)
            queue = running.vhost.registry.queue("jobs")
            consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
            queue.subscribe(consumer)
            queue.take(0)
            published = consumer.next_tag
            assert published > 20
            for tag in range(published):
                queue.settle(consumer, tag, tag + 1, ACK if tag % 8 else REJECT)
            queue.unsubscribe(consumer, 0)
            running.pump_once()
            await until_space(running)
            rejected += len(range(0, published, 8))
            await until(lambda: ready(running)["graves"] == rejected, VIRTUAL_PATIENCE_S)
        assert not running.batch_reader.lost

    run(volume, life)


def test_a_purge_without_room_says_so_and_drops_nothing() -> None:
    """Found: all of it was gone from the queue, but not on the disk, and no answer came."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        published = await fill(running)
        with pytest.raises(StoreFull):  # The reserve has gone.
            while True:
                running.log.append_nowait([Draft(Kind.ACKS, encode_acks({}))])
        with pytest.raises(StoreFull):
            await purge(running)
        assert ready(running)["jobs"] == published
        volume.capacity_bytes *= 2
        await until_space(running)
        assert await purge(running) == published
        assert not ready(running)["jobs"]

    async def nothing_comes_back(running: RunningVhost) -> None:
        assert not ready(running)["jobs"]

    run(volume, life)
    run(volume, nothing_comes_back)


def test_a_purge_of_more_than_a_record_says() -> None:
    """Every other message is out, so that each of the rest is a range of its own."""
    volume, ranges = Volume(), 2 * SEGMENT // 4 // RANGE.size

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        for number in range(0, 2 * ranges, 2):
            await publish(running, make_batch(number, [b"", b""], key="jobs"))
        queue = running.vhost.registry.queue("jobs")
        consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        queue.take(0)
        for tag in range(0, 2 * ranges, 2):
            queue.settle(consumer, tag, tag + 1, REQUEUE)
        await flushed(running)
        end = running.log.end
        assert await purge(running) == ranges
        assert running.log.end > end + 2
        assert await purge(running) == 0

    async def the_others_are_there(running: RunningVhost) -> None:
        assert ready(running)["jobs"] == ranges

    run(volume, life)
    run(volume, the_others_are_there)
