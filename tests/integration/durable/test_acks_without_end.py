"""A full disk that nothing gives space back to: what is acked goes on being durable.

On a memory disk without a byte free, in virtual time. Of each segment of messages one is never acked, so none
of them goes; the acks themselves take many times what is kept for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
import trio

from durable.broker.running_vhost import RunningVhost
from durable.errors import StoreFull
from durable.log.bodies import RANGE
from durable.log.faulty_disk import Faults
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Draft, Kind
from durable.log.report import RecoveryReport
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK, REQUEUE
from durable.queues.settled import CHUNK
from tests.integration.durable.test_full_disk import (
    SOME,
    VIRTUAL_PATIENCE_S,
    fill,
    settle,
    until_space,
)
from tests.integration.durable.test_too_large import declare, publish
from tests.logs import PlainLog
from tests.power_cuts import CONFIG, run
from tests.vhosts import flushed, make_batch
from tests.waiting import virtual_sleep

SEGMENT, RESERVE = 1 << 14, 1 << 11
LOG = replace(CONFIG.log, segment_bytes=SEGMENT, reserve_bytes=RESERVE, compaction_share_max=0.0)
FULL = replace(CONFIG, log=LOG)
ACK_BYTES = 100
"""Of one that is committed alone, about."""
AT_ONCE = 50
"""Messages of a batch."""


async def fill_with_small(
    running: RunningVhost, volume: Volume, message: bytes = bytes(50), *, rest_at: int = -1
) -> int:
    """Small messages to `jobs` until there is no room, and then nobody has any; how many are confirmed.

    Args:
        rest_at: after so many batches there is time for a checkpoint.
    """
    number = 0
    while True:
        if number == rest_at * AT_ONCE:
            await virtual_sleep(3 * CONFIG.idle_s)
        try:
            await publish(running, make_batch(number, [message] * AT_ONCE, key="jobs"))
        except StoreFull:
            volume.capacity_bytes = volume.used_bytes
            return number
        number += AT_ONCE


class Acking:
    """A consumer that has everything, and the sequences that it knows to be acked for certain."""

    def __init__(self, running: RunningVhost) -> None:
        self._running = running
        self._queue = running.vhost.registry.queue("jobs")
        self._tags = {number: tag for tag, number in enumerate(sorted(unsettled(running)))}
        self._consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
        self._queue.subscribe(self._consumer)
        self._queue.take(0)
        self._consumer.paused = True

    async def settle(self, acked: Iterable[int], returned: Iterable[int] = ()) -> None:
        """In one turn; returns when that is on disk."""
        for outcome, numbers in ((ACK, acked), (REQUEUE, returned)):
            for number in numbers:
                tag = self._tags[number]
                self._queue.settle(self._consumer, tag, tag + 1, outcome)
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await flushed(self._running)

    def settle_rest(self, but: int = 0) -> None:
        """But for so many of the last. Returns at once."""
        self._queue.settle(self._consumer, 0, self._consumer.next_tag - but, ACK)


def unsettled(running: RunningVhost) -> set[int]:
    (lane,) = running.vhost.registry.queue("jobs").lanes
    return {one for low, high in lane.ready_ranges() for one in range(low, high)}


def returned_in(running: RunningVhost) -> dict[int, int]:
    """How often messages of `jobs` came back that did."""
    (lane,) = running.vhost.registry.queue("jobs").lanes
    return {
        one: times
        for start, end, times in lane.returns_between(0, lane.index.end)
        for one in range(start, end)
        if times
    }


@pytest.mark.parametrize("step", [1, 2])
def test_acks_one_by_one_go_on_for_as_long_as_there_are_messages(step: int) -> None:
    """Found: when the reserve was used up none was taken any more, for good. Every second message leaves
    a range of its own each time."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    acked: set[int] = set()
    published = 0

    async def first(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill_with_small(running, volume)
        acking = Acking(running)
        for number in range(1, published, step):
            if number % AT_ONCE:
                await acking.settle([number])
                acked.add(number)
        assert len(acked) * ACK_BYTES > 4 * 3 * RESERVE
        assert volume.used_bytes == volume.capacity_bytes
        assert running.log.statistics().full

    async def second(running: RunningVhost) -> None:
        assert unsettled(running) == set(range(published)) - acked
        await settle(running, "jobs", ACK)
        await until_space(running)
        assert await fill(running, most=SOME) == SOME

    run(volume, first, config=FULL)
    run(volume, second, config=FULL)


@dataclass(frozen=True, slots=True)
class Ends:
    """How far the records of a disk go: their end as log position, and the byte behind the last one of each segment."""

    position: int
    bytes_at: dict[int, int]

    @classmethod
    def of(cls, volume: Volume) -> Ends:
        log = PlainLog(MemoryDisk(volume), LOG)
        return cls(log.report.end, {one.number: one.end_at for one in log.store.segments})


@dataclass(frozen=True, slots=True)
class Image:
    """What a kill or a power cut leaves, and what is certain then."""

    volume: Volume
    acked: set[int]
    """That is on disk."""
    asked: set[int]
    returned: set[int]
    """Asked for; each at most once."""
    confirmed_end: int
    synced: Ends
    """Of what is on stable storage."""
    written: Ends
    """Of what is there, or in the cache. A kill loses nothing of it."""

    def check_report(self, report: RecoveryReport) -> None:
        """What was synced is there. Behind it, a record that was only written may be missing before a kept one of the
        same commit; nothing else may, and that is told as never confirmed."""
        assert self.confirmed_end <= self.synced.position
        assert self.synced.position <= report.end <= self.written.position
        for gap in report.gaps:
            assert self.synced.position <= gap.start < gap.end <= self.written.position
            assert not gap.synced
        for one in report.damage:
            synced, written = (
                ends.bytes_at.get(one.segment, 0) for ends in (self.synced, self.written)
            )
            assert synced <= one.at < one.end < written
            assert report.gaps, "what is only torn is not told as damage"


class Images(Faults):
    """Before each change to the disk, what a kill and what a power cut would leave, and what was certain."""

    def __init__(self, volume: Volume) -> None:
        super().__init__()
        self._volume = volume
        self.acked: set[int] = set()
        self.asked: set[int] = set()
        self.returned: set[int] = set()
        """As in `Image`."""
        self.confirmed_end: Callable[[], int] | None = None
        """Which log positions are confirmed: images are taken as soon as this is set."""
        self.left: list[Image] = []

    def change(self) -> bool:
        if self.confirmed_end is not None:
            known = set(self.acked), set(self.asked), set(self.returned), self.confirmed_end()
            synced_only = Volume()
            self._volume.fill_after_power_cut(synced_only, Random(0), keep=0.0)
            synced, written = Ends.of(synced_only), Ends.of(self._volume.copy())
            left = self._volume.after_power_cut(Random(self.changes))
            self.left.append(Image(self._volume.copy(), *known, synced=written, written=written))
            self.left.append(Image(left, *known, synced=synced, written=written))
        return super().change()


def check_each(images: Images, published: int, more: int) -> None:
    """Nothing that was acked comes back, nothing else is missing, nothing came back more often than it
    did; and each goes on: so many acks one by one, and all is taken once the rest has been consumed."""
    assert images.left

    async def look(running: RunningVhost) -> None:
        image.check_report(running.log.report)
        there = unsettled(running)
        assert not there & image.acked
        assert there >= set(range(published)) - image.asked
        came_back = returned_in(running)
        assert set(came_back) <= image.returned
        assert set(came_back.values()) <= {1}
        acking = Acking(running)
        for number in sorted(there)[: more if at % 7 == 0 else 1]:
            await acking.settle([number])
            there.remove(number)
        assert unsettled(running) == set()
        rest.append(there)

    async def last(running: RunningVhost) -> None:
        assert unsettled(running) == rest.pop()
        with trio.fail_after(VIRTUAL_PATIENCE_S):
            await settle(running, "jobs", ACK)
        await until_space(running)
        assert await fill(running, most=SOME) == SOME

    rest: list[set[int]] = []
    for at, image in enumerate(images.left):  # noqa: B007 (`look` reads them)
        run(image.volume, look, config=FULL)
        run(image.volume, last, config=FULL)


def test_a_kill_or_a_power_cut_at_any_change_brings_no_ack_back() -> None:
    """While each spare is taken more than once. There are checkpoints of before the disk was full, too."""
    volume = Volume(capacity_bytes=3 * SEGMENT + SEGMENT // 2)
    images, published = Images(volume), 0

    async def life(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill_with_small(running, volume, rest_at=8)
        acking = Acking(running)
        for number in range(1, 100):
            if number % AT_ONCE:
                if running.log.statistics().segments > 3:
                    images.confirmed_end = lambda: running.log.durable_end
                images.asked.add(number)
                await acking.settle([number])
                images.acked.add(number)

    run(volume, life, images, FULL)
    check_each(images, published, 60)


def test_more_at_once_than_there_is_room_for_is_in_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by reading: what the log had no room for kept the snapshot away that makes some. Every second
    message, so that each takes a range; a checkpoint would say part of it, but there is none."""
    monkeypatch.setattr("durable.vhost.snapshot.SETTLED_BYTES_MAX", 100)
    monkeypatch.setattr("durable.vhost.snapshot.RETURNS_MAX", 2)
    volume = Volume(capacity_bytes=3 * SEGMENT + SEGMENT // 2)
    images, published = Images(volume), 0

    async def life(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill_with_small(running, volume)
        acking = Acking(running)
        for number in range(60):
            await acking.settle([number])
        assert running.log.statistics().segments > 3
        images.confirmed_end = lambda: running.log.durable_end
        images.acked = set(range(60))
        images.returned = set(range(61, published, 20))
        images.asked = {*range(61, published, 2), *images.acked} - images.returned
        assert len(images.asked) * RANGE.size > 2 * RESERVE
        await acking.settle(sorted(images.asked - images.acked), images.returned)
        images.acked = images.asked
        await virtual_sleep(3 * CONFIG.idle_s)
        images.change()

    async def came_back(running: RunningVhost) -> None:
        assert returned_in(running) == dict.fromkeys(images.returned, 1)

    run(volume, life, images, FULL)
    run(volume.copy(), came_back, config=FULL)
    check_each(images, published, 60)


@pytest.mark.parametrize("share_max", [0.0, 0.25])
def test_what_was_stuck_comes_back_when_all_is_consumed(share_max: float) -> None:
    """Found: acks found no room beside what was kept for a snapshot, and none was written, for nothing was let go
    of before they were on disk. It says what they say."""
    volume = Volume(capacity_bytes=16 * SEGMENT + SEGMENT // 2)
    config = replace(FULL, log=replace(LOG, compaction_share_max=share_max))

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        published = await fill_with_small(running, volume, b"")
        acking = Acking(running)
        with pytest.raises(trio.TooSlowError):
            for number in (*range(1, published, CHUNK), *range(2, published)):
                await acking.settle([number])
        acking.settle_rest()
        await until_space(running)
        await flushed(running)
        await fill_with_small(running, volume)

    run(volume, life, config=config)


@pytest.mark.parametrize("left", [0, 1])
def test_acks_for_which_there_is_no_room_at_all_are_said_by_a_snapshot(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that frees a segment. Found: not where every queue is empty then, nor before anything was let go of."""
    volume = Volume(capacity_bytes=4 * SEGMENT + SEGMENT // 2)
    published = 0

    async def first(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill_with_small(running, volume)
        volume.capacity_bytes += SEGMENT // 4  # For checkpoint files.
        append = running.log.append_nowait

        def refuse_acks(drafts: Sequence[Draft], *, hurry: bool = True) -> range:
            if any(draft.kind == Kind.ACKS for draft in drafts):
                raise StoreFull(1, SEGMENT, 0)
            return append(drafts, hurry=hurry)

        acking = Acking(running)
        with monkeypatch.context() as patch:
            patch.setattr(running.log, "append_nowait", refuse_acks)
            acking.settle_rest(but=left)
            running.pump_once()
            await until_space(running)
            await flushed(running)

    async def second(running: RunningVhost) -> None:
        assert unsettled(running) == set(range(published - left, published))

    run(volume, first, config=FULL)
    run(volume, second, config=FULL)


def test_the_bound_that_remains_is_what_a_snapshot_in_a_spare_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each 4096 messages of which some are settled take 520 bytes of it. Beyond, acks wait for room and are
    not told to be on disk; that there is no checkpoint is said once, not every second."""
    volume = Volume(capacity_bytes=16 * SEGMENT + SEGMENT // 2)
    acked: set[int] = set()
    published = 0

    async def first(running: RunningVhost) -> None:
        nonlocal published
        await declare(running, "jobs")
        published = await fill_with_small(running, volume, b"")
        acking = Acking(running)
        for number in range(1, published, CHUNK):
            await acking.settle([number])
            acked.add(number)
        assert len(acked) * CHUNK // 8 >= 2 * RESERVE
        with pytest.raises(trio.TooSlowError):
            for number in range(2, published):
                acked.add(number)
                await acking.settle([number])
        assert len(acked) > 3 * RESERVE // 2 // ACK_BYTES
        assert caplog.text.count("no checkpoint of vhost /") == 1
        volume.capacity_bytes *= 2
        await until_space(running)
        await flushed(running)

    async def second(running: RunningVhost) -> None:
        assert unsettled(running) == set(range(published)) - acked

    run(volume, first, config=FULL)
    run(volume, second, config=FULL)
