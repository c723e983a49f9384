"""What is made ahead, where it goes wrong: the carrier and the segment after, in virtual time or step by step."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from durable.errors import StoreFull
from durable.log.disk import File
from durable.log.faulty_disk import Faults, FaultyFile
from durable.log.header import segment_name, spare_name
from durable.log.log import Log, open_log
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.placing import Ahead
from durable.log.spares import CARRIER, SPARES, Spare
from durable.log.store import Store
from tests.logs import SMALL, PlainLog, acks, definitions, inline, publish
from tests.unit.durable.log.test_carrying import carrying, spacious
from tests.unit.durable.log.test_full import carried, fill
from tests.unit.durable.log.test_spares import SNAPSHOT_BYTES
from tests.unit.durable.log.test_spares import full as spare_written
from tests.waiting import until, virtual_sleep

PATIENCE_S = 100.0


class Refusing(MemoryDisk):
    """No name is changed while there is an error."""

    error: int | None = None

    def rename(self, old: str, new: str) -> None:
        if self.error is not None:
            raise OSError(self.error, "refused")
        super().rename(old, new)


async def fill_up(log: Log) -> int:
    """Publish until there is no room; how many went in."""
    with pytest.raises(StoreFull):
        for number in range(1000):
            await log.durable(*await log.append([publish(number, 200)]))
    return number


async def snapshot(log: Log) -> None:
    """One that knows all there is, and frees what nothing needs."""
    end = log.end
    draft = definitions("x" * 200)._replace(snapshot=True)
    await log.durable(*await log.append([draft]))
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
            await log.durable(*await log.append([carried(1)]))
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
            await log.durable(*await log.append([carried(1)]))
        volume.capacity_bytes = volume.used_bytes + SMALL.segment_bytes
        await virtual_sleep(10 * SMALL.retry_s)
        assert log.statistics().full
        volume.capacity_bytes += SMALL.segment_bytes
        await until(lambda: not log.statistics().full, PATIENCE_S)


@pytest.mark.parametrize(("error", "kind"), [(errno.ENOSPC, StoreFull), (errno.EMFILE, OSError)])
def test_a_carrier_that_cannot_be_renamed_is_one_later(error: int, kind: type[Exception]) -> None:
    volume = spacious()
    carrying(volume).close()
    volume.capacity_bytes = volume.used_bytes
    disk = Refusing(volume)
    log = PlainLog(disk)
    number = log.committer.placer.cursor.number + 1
    disk.error = error
    with pytest.raises(kind):
        log.store.carrier_ahead(number)
    disk.error = None
    log.store.carrier_ahead(number)
    assert segment_name(number) in volume.seen


def ahead_for_carrier() -> tuple[Volume, str]:
    """As a kill leaves it, before the carrier's first record; the name it has."""
    volume = spacious()
    log = carrying(volume)
    name = segment_name(log.committer.placer.cursor.number + 1)
    volume.seen[name] = volume.seen.pop(spare_name(CARRIER))
    volume = volume.copy()
    volume.capacity_bytes = volume.used_bytes
    return volume, name


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_start_does_without_a_carrier_that_cannot_be_renamed(error: int) -> None:
    volume, name = ahead_for_carrier()
    disk = Refusing(volume)
    disk.error = error
    log = PlainLog(disk)
    assert name in volume.seen
    assert log.committer.placer.spares.carrier is None
    assert log.committer.placer.ahead is Ahead.READY
    log.write(publish(1, 1500))


@pytest.mark.parametrize("torn", [range(1), range(20, 40), range(200, 300)])
def test_a_carrier_whose_first_write_was_torn_is_one_again(torn: range) -> None:
    """Found: a start removed it, and others took its place."""
    volume, name = ahead_for_carrier()
    volume.seen[name].write(b"x" * len(torn), torn.start)
    log = PlainLog(MemoryDisk(volume))
    assert log.committer.placer.spares.carrier is not None
    assert not any(volume.seen[spare_name(CARRIER)].seen)
    before = log.contents()
    while log.committer.placer.spares.carrier is not None:
        log.write(carried(1))
    expected = log.contents()
    assert expected.items() > before.items()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.contents() == expected
    assert not log.report.gaps


class Tight(MemoryDisk):
    """One that copies what is written over, and has no room for that in one file."""

    tight = ""

    def open(self, name: str) -> File:
        file = super().open(name)
        assert isinstance(file, MemoryFile)
        return FaultyFile(file, Faults(write_error=errno.ENOSPC)) if name == self.tight else file


def test_where_it_cannot_be_zeros_again_it_gives_its_space_back() -> None:
    volume, name = ahead_for_carrier()
    volume.seen[name].write(b"x", 0)
    disk = Tight(volume)
    disk.tight = name
    log = PlainLog(disk)
    assert log.committer.placer.ahead is Ahead.REFUSED
    assert not {name, spare_name(CARRIER)} & volume.seen.keys()
    log.write(acks(7, 0, 1))


def test_a_spare_that_was_begun_without_a_record_keeps_its_size() -> None:
    """Found: its header was written once more, with the size of a segment, and the start after that took so much."""
    volume = Volume(capacity_bytes=4 * SMALL.segment_bytes)
    log = spare_written(volume)
    cursor = log.committer.placer.cursor
    name = segment_name(cursor.number)
    file = volume.seen[name]
    log.close()
    file.write(bytes(cursor.at - 64), 64)
    for number in range(2):
        log = PlainLog(MemoryDisk(volume))
        assert log.committer.placer.cursor.capacity_bytes == cursor.capacity_bytes
        assert log.report.torn is None
        log.write(acks(7, number, number + 1))
        log.close()
        assert len(file.seen) == cursor.capacity_bytes


def test_the_third_segment_brings_a_carrier_before_it_is_durable() -> None:
    """Found: it came with the fourth, for which publishes had to wait."""
    log = PlainLog(MemoryDisk(), replace(SMALL, commit_bytes_max=1 << 20))
    log.committer.placer.keep_for_snapshot(SNAPSHOT_BYTES)
    placer = log.committer.placer
    for wanted in placer.wanted_spares():
        placer.spares.add(log.store.make_spare(wanted))
    while placer.cursor.number < 3:
        assert not placer.carries
        log.append(publish(1, 200))
    assert len(log.store.segments) == 0
    assert not placer.carries
    log.commit()
    assert placer.carries


def test_segments_that_were_spares_are_none_that_would_be_carried_forward() -> None:
    """Found: two of them, on a disk of few segments, kept the next one from publishes."""
    volume = Volume(capacity_bytes=3 * SMALL.segment_bytes)
    log = spare_written(volume)
    placer, segments = log.committer.placer, log.store.segments
    while placer.spares.small:
        log.write(acks(7, 0, 1))
    assert len(segments) > 3
    assert sum(one.capacity_bytes == SMALL.segment_bytes for one in segments) < 3
    assert not placer.carries
    log.close()
    assert not PlainLog(MemoryDisk(volume)).committer.placer.carries


def test_spares_that_are_all_segments_are_there_as_far_as_a_carrier_goes() -> None:
    log = carrying(spacious())
    placer = log.committer.placer
    while placer.spares.small:
        log.write(acks(7, 0, 1))
    assert placer.carries
    assert len(placer.spares.taken) == 0
    assert len(log.store.segments) >= 3 + SPARES
    assert fill(log) == 0
