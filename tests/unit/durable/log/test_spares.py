"""Small files that are kept for acks, and become segments where no other one can be made."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from durable.errors import StoreBusy, StoreFull
from durable.log.header import segment_name
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.spares import CARRIER, NEW, SPARES
from tests.full_logs import SNAPSHOT_BYTES, have_small, in_spare, make_spares, opened, remove, room
from tests.logs import SMALL, PlainLog, acks, definitions, inline, publish
from tests.waiting import until


def spares_in(volume: Volume) -> list[str]:
    return [name for name in volume.seen if name.startswith("spare.")]


def test_acks_go_on_in_spares_and_are_all_there_after_a_restart() -> None:
    volume = room()
    log = in_spare(volume)
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(acks(7, number, number + 1))
    assert not spares_in(volume)
    before = log.contents()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.contents() == before
    assert log.report.torn is None


def test_a_spare_that_was_freed_is_one_again_and_nobody_else_can_have_its_space() -> None:
    volume = room()
    log = in_spare(volume)
    first = log.store.segments.last
    assert first is not None
    while log.store.segments.last is first:
        log.write(acks(7, 0, 1))
    volume.capacity_bytes = volume.used_bytes
    log.store.segments.remove([first])
    log.committer.placer.spares.add(*remove(log.store, first.number, spares_max=SPARES))
    assert not log.store.in_place, "there is no space for another segment in its place"
    assert volume.used_bytes == volume.capacity_bytes
    for number in range(5):
        before = log.store.segments.last
        assert before is not None
        while log.store.segments.last is before:
            log.write(acks(7, number, number + 1))
        log.store.segments.remove([before])
        log.committer.placer.spares.add(*remove(log.store, before.number, spares_max=SPARES))
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert not log.report.damage
    assert not log.report.gaps


def test_more_than_enough_spares_give_their_space_back() -> None:
    volume = room()
    log = in_spare(volume)
    first = log.store.segments.last
    assert first is not None
    assert remove(log.store, first.number) == []
    assert segment_name(first.number) not in volume.seen
    assert log.store.in_place


def test_no_spare_is_taken_under_a_number_that_is_being_made() -> None:
    """The segment ahead would be replaced by it, or it by that one, with what is in it."""
    log = opened(room())
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(publish(number, 200))
    assert log.committer.wanted_segment() is not None
    with pytest.raises(StoreBusy, match="being made"):
        for number in range(1000):
            log.committer.append([acks(7, number, number + 1)])
    log.committer.segment_refused(0)
    log.committer.append([acks(7, 0, 1)])
    log.commit()
    assert len(log.committer.placer.spares.small) == SPARES - 1


def test_what_is_declared_on_a_full_disk_leaves_room_for_acks() -> None:
    """The next snapshot says it, too: a spare that it fills gives none."""
    log = in_spare(room())
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(definitions(f"one more queue, number {number}"))
    wanted = [one.number for one in log.committer.placer.wanted_spares()]
    assert wanted == [NEW, CARRIER], "the one that is left is large enough"
    log.write(acks(7, 0, 1))


def test_a_spare_that_has_become_too_small_grows_when_there_is_space() -> None:
    volume = room()
    log = opened(volume)
    placer = log.committer.placer
    before = list(placer.spares.small)
    placer.keep_for_snapshot(2 * SNAPSHOT_BYTES)
    volume.capacity_bytes = volume.used_bytes
    with pytest.raises(StoreFull):
        make_spares(log)
    volume.capacity_bytes += SMALL.segment_bytes
    wanted = placer.wanted_spares()
    assert [one.number for one in wanted] == [one.number for one in before]
    have_small(placer, *[log.store.make_spare(one) for one in wanted])
    assert not placer.wanted_spares()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.committer.placer.spares.small == placer.spares.small


def test_a_small_segment_stays_small_when_it_is_opened_on_a_disk_with_space() -> None:
    """Found: it was made as large as others, whatever that left on the disk, and was no spare any more."""
    volume = room()
    log = in_spare(volume)
    last = log.store.segments.last
    assert last is not None
    name, size = segment_name(last.number), volume.seen[segment_name(last.number)]
    small = len(size.seen)
    assert small < SMALL.segment_bytes
    log.close()
    volume.capacity_bytes *= 4
    PlainLog(MemoryDisk(volume)).close()
    assert len(volume.seen[name].seen) == small
    volume.cut(name, small - 8)
    log = PlainLog(MemoryDisk(volume))
    assert len(volume.seen[name].seen) == small
    assert log.report.torn is not None
    assert log.report.torn.missing_bytes == 8


def test_a_directory_of_somebody_else_is_no_spare() -> None:
    volume = room()
    opened(volume).close()
    MemoryDisk(volume).make_directory("spare.0000000009")
    log = opened(volume)
    assert len(log.committer.placer.spares.small) == SPARES
    have_small(log.committer.placer, log.committer.placer.spares.small[0])
    make_spares(log)
    assert "spare.0000000010" in volume.seen


async def test_spares_are_made_once_it_is_known_how_large_a_snapshot_is(
    autojump_clock: MockClock,
) -> None:
    """And closing waits for none of that."""
    volume = room()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        assert not spares_in(volume)
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        await until(lambda: len(spares_in(volume)) == SPARES)
        await log.append([publish(1)])
    assert not volume.locked


async def test_spares_come_when_there_is_space_for_them_and_not_for_a_segment(
    autojump_clock: MockClock,
) -> None:
    volume = Volume(capacity_bytes=SMALL.segment_bytes + 1000)
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        log.keep_for_snapshot(SNAPSHOT_BYTES)
        with pytest.raises(StoreFull):
            while True:
                await log.append([publish(1, 100)])
        await until(lambda: len(spares_in(volume)) == 1)
        volume.capacity_bytes += 1000
        await until(lambda: len(spares_in(volume)) == SPARES)
        assert log.statistics().full
    assert not volume.locked
