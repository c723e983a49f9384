"""What is made ahead, where it goes wrong: the carrier and the segment after, in virtual time or step by step."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from trio.testing import MockClock

from durable.errors import StoreFull
from durable.log.header import segment_name, spare_name
from durable.log.log import Log, open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.segments_ahead import _make_spare
from durable.log.spares import CARRIER, SPARES, Spare
from durable.log.store import Store
from tests.full_logs import (
    SNAPSHOT_BYTES,
    carried,
    opened,
    room,
    spacious,
)
from tests.logs import SMALL, PlainLog, definitions, inline, publish
from tests.waiting import until, virtual_sleep

PATIENCE_S = 100.0


async def fill_up(log: Log) -> int:
    """Publish until there is no room; how many went in."""
    with pytest.raises(StoreFull):
        for number in range(1000):
            await log.wait_durable(*await log.append([publish(number, 200)]))
    return number


async def snapshot(log: Log) -> None:
    """One that knows all there is, and frees what nothing needs."""
    end = log.end
    draft = definitions("x" * 200)._replace(snapshot=True)
    await log.wait_durable(*await log.append([draft]))
    log.snapshot_at(end - 1)
    await log.free()


class OthersTake:
    """Worker threads after which others have taken what has been freed, as long as they are to."""

    def __init__(self, volume: Volume) -> None:
        self._volume, self.taking = volume, False

    async def __call__(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        found = await inline(call, *args, **options)
        if self.taking:
            self._volume.capacity_bytes = min(self._volume.capacity_bytes, self._volume.used_bytes)
        return found


async def test_a_carrier_that_is_useless_becomes_the_next_segment(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """So that a disk of few segments is not full for want of the one that is kept."""
    volume = spacious()
    others = OthersTake(volume)
    async with open_log(MemoryDisk(volume), SMALL, in_thread=others) as log:
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await fill_up(log)
        assert spare_name(CARRIER) in volume.seen
        assert log.statistics().full
        others.taking = True
        await snapshot(log)
        assert log.statistics().segments < 3
        await until(lambda: not log.statistics().full, PATIENCE_S)
        assert spare_name(CARRIER) not in volume.seen
        assert log._committer.placer.spares.carrier is None
        assert await fill_up(log) > 5
    assert any("there is space again" in one.message for one in caplog.records)


async def test_publishes_wait_for_a_carrier_that_is_missing(autojump_clock: MockClock) -> None:
    """It comes before a segment: else they would fill what was to free one."""
    volume = spacious()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await fill_up(log)
        while spare_name(CARRIER) in volume.seen:
            await log.wait_durable(*await log.append([carried(1)]))
        volume.capacity_bytes = volume.used_bytes + SMALL.segment_bytes
        await until(lambda: spare_name(CARRIER) in volume.seen, PATIENCE_S)
        await virtual_sleep(10 * SMALL.retry_s)
        assert log.statistics().full
        volume.capacity_bytes += SMALL.segment_bytes
        await until(lambda: not log.statistics().full, PATIENCE_S)


async def test_publishes_wait_for_a_carrier_that_is_not_made_yet(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the last one is being written: the space there is, is for the next."""
    volume = spacious()

    def refuse(self: Store, wanted: Spare) -> Spare:
        raise StoreFull(wanted.size_bytes, SMALL.segment_bytes, 0)

    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await fill_up(log)
        monkeypatch.setattr(Store, "make_spare", refuse)
        while spare_name(CARRIER) in volume.seen:
            await log.wait_durable(*await log.append([carried(1)]))
        volume.capacity_bytes = volume.used_bytes + SMALL.segment_bytes
        await virtual_sleep(10 * SMALL.retry_s)
        assert log.statistics().full
        volume.capacity_bytes += SMALL.segment_bytes
        await until(lambda: not log.statistics().full, PATIENCE_S)


async def test_a_spare_that_is_to_grow_stays_what_it_is_where_there_is_no_space(
    autojump_clock: MockClock,
) -> None:
    """Nobody takes it meanwhile; grown, there is one of it."""
    volume = spacious()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        spares = log._committer.placer.spares
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await until(lambda: len(spares.small) == SPARES, PATIENCE_S)
        before, capacity = list(spares.small), volume.capacity_bytes
        volume.capacity_bytes = volume.used_bytes
        log.keep_for_snapshot(2 * SNAPSHOT_BYTES)
        await virtual_sleep(10 * SMALL.retry_s)
        assert spares.small == before
        volume.capacity_bytes = capacity
        log.keep_for_snapshot(2 * SNAPSHOT_BYTES)
        await until(lambda: min(spares.small)[1] > max(before)[1], PATIENCE_S)
        await until(lambda: len(spares.small) == SPARES, PATIENCE_S)
        assert {one.number for one in spares.small} == {one.number for one in before}


class Undone(MemoryDisk):
    """While it is tight, neither what is begun can be ended, nor undone."""

    tight = False

    def sync_directory(self) -> None:
        self._refuse()
        super().sync_directory()

    def unlink(self, name: str) -> None:
        self._refuse()
        super().unlink(name)

    def _refuse(self) -> None:
        if self.tight:
            raise OSError(errno.ENOSPC, "refused")


def test_an_attempt_that_could_not_be_undone_keeps_nothing_from_the_next() -> None:
    """Found: the file was there, and the store stopped."""
    disk = Undone(Volume())
    store = PlainLog(disk).store
    disk.tight = True
    for _ in range(2):
        with pytest.raises(StoreFull):
            store.make_segment(9, False)
    disk.tight = False
    store.make_segment(9, False)
    assert len(disk.open(segment_name(9)).pread(SMALL.segment_bytes, 0)) == SMALL.segment_bytes


class Unsynced(MemoryDisk):
    """Names find no space, and what is begun is undone, or not."""

    undone: int | None = None

    def sync_directory(self) -> None:
        raise OSError(errno.ENOSPC, "refused")

    def unlink(self, name: str) -> None:
        if self.undone is not None:
            raise OSError(self.undone, "refused")
        super().unlink(name)


@pytest.mark.parametrize("error", [None, errno.EIO])
def test_of_a_segment_without_a_name_nothing_is_left_if_that_can_be(
    error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is said is why it could not be made."""
    volume = Volume()
    store = PlainLog(MemoryDisk(volume)).store
    monkeypatch.setattr(store._allocator, "_disk", disk := Unsynced(volume))
    disk.undone = error
    with pytest.raises(StoreFull):
        store.make_segment(9, False)
    assert (segment_name(9) in volume.seen) == (error is not None)


def test_a_segment_that_is_made_is_there_after_a_power_cut() -> None:
    volume = Volume()
    PlainLog(MemoryDisk(volume)).store.make_segment(9, False)
    for seed in range(20):
        left = volume.after_power_cut(Random(seed))
        assert bytes(left.seen[segment_name(9)].seen) == bytes(SMALL.segment_bytes)


async def test_a_spare_that_was_to_grow_and_has_been_taken_is_not_made_again() -> None:
    volume = room()
    log = opened(volume)
    before = set(volume.seen)
    await _make_spare(log.store, inline, Spare(99, 600))
    assert set(volume.seen) == before
