"""Small files that are kept for acks, and become segments where no other one can be made."""

from __future__ import annotations

import errno
from itertools import count

import pytest
from trio.testing import MockClock

from durable.errors import StoreBusy, StoreFull
from durable.log.disk import File
from durable.log.header import segment_name, spare_name
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.scarcity import SCARCE_S_MAX
from durable.log.spares import CARRIER, NEW, SPARES, Spare
from tests.full_logs import (
    SNAPSHOT_BYTES,
    behind_spare,
    carried,
    fill,
    have_small,
    in_spare,
    make_spares,
    opened,
    remove,
    room,
)
from tests.logs import SMALL, PlainLog, acks, definitions, inline, publish
from tests.unit.durable.log.test_freeing import no_space
from tests.waiting import until, virtual_sleep


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
    assert not log.store.place_vacant, "there is no space for another segment in its place"
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
    assert log.store.place_vacant


def test_no_spare_is_taken_under_a_number_that_is_being_made() -> None:
    """The segment ahead would be replaced by it, or it by that one, with what is in it."""
    log = opened(room())
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(publish(number, 200))
    assert log.committer.placer.wanted_segment() is not None
    with pytest.raises(StoreBusy, match="being created"):
        for number in range(1000):
            log.committer.append([acks(7, number, number + 1)])
    log.committer.placer.segment_refused(0)
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


def test_a_spare_that_could_not_be_renamed_is_made_again_as_large_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: the next snapshot had grown since, and there never was space for one that is larger."""
    volume = room()
    log, small = behind_spare(volume)
    placer = log.committer.placer
    (before,) = (one for one in log.store.segments if one.number == small)
    log.store.segments.remove([before])
    volume.capacity_bytes = volume.used_bytes
    with monkeypatch.context() as patch:
        patch.setattr(log.store._disk, "rename", no_space)
        assert remove(log.store, small, spares_max=SPARES) == []
        assert log.store.remove(SPARES) == []
    assert volume.free_bytes == before.capacity_bytes
    placer.keep_for_snapshot(SNAPSHOT_BYTES + 64)
    wanted, *_ = placer.wanted_spares()
    assert wanted.size_bytes > before.capacity_bytes
    placer.spares.add(log.store.make_spare(wanted))
    assert [one.size_bytes for one in placer.spares.small] == [before.capacity_bytes]
    assert not volume.free_bytes
    volume.capacity_bytes += before.capacity_bytes
    with pytest.raises(StoreFull):
        log.store.make_spare(wanted)


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


def test_a_spare_is_zeros_on_the_disk_before_it_is_a_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stood in it when it was one before would be read as records of this one."""
    volume = room()
    log = opened(volume)
    (spare, _) = log.committer.placer.spares.small
    inode = volume.seen[spare_name(spare.number)]
    inode.write(b"x" * 700, 0)
    inode.sync()
    rename = log.store._disk.rename
    found = list[bytes]()

    def look(old: str, new: str) -> None:
        if old == spare_name(spare.number):
            found.append(bytes(inode.stable))
        rename(old, new)

    monkeypatch.setattr(log.store._disk, "rename", look)
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(publish(number, 200))
    while not found:
        log.write(acks(7, 0, 1))
    assert found == [bytes(spare.size_bytes)]


def test_a_spare_that_is_freed_takes_no_other_ones_name() -> None:
    """Not even one that has the number of its segment."""
    volume = room()
    log, small = behind_spare(volume)
    volume.capacity_bytes *= 2
    log.store._spares._numbers = count(small)
    made = log.store.make_spare(Spare(NEW, 600))
    assert made.number == small
    (again,) = remove(log.store, small, spares_max=1)
    assert again.number != made.number
    assert {spare_name(one.number) for one in (made, again)} <= volume.seen.keys()


def test_attempts_that_cannot_be_undone_leave_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where to remove a file takes space, each of them left another one."""
    volume = Volume()
    disk = MemoryDisk(volume)
    log = PlainLog(disk)
    log.committer.placer.keep_for_snapshot(SNAPSHOT_BYTES)
    wanted = log.committer.placer.wanted_spares()
    assert wanted == [wanted[0]] * SPARES
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "preallocate", no_space)
        patch.setattr(disk, "unlink", no_space)
        for _ in range(5):
            with pytest.raises(StoreFull):
                log.store.make_spare(wanted[0])
    (left,) = (name for name in volume.seen if name.startswith("spare"))
    made = [log.store.make_spare(one) for one in wanted]
    assert left == spare_name(made[0].number)
    assert made[0].number != made[1].number
    assert [one.size_bytes for one in made] == [one.size_bytes for one in wanted]


@pytest.mark.parametrize("size_bytes", [0, 2048])
def test_segments_that_were_being_made_when_a_kill_came_are_not_more_spares_each_time(
    size_bytes: int,
) -> None:
    volume = Volume()
    opened(volume).close()
    for _ in range(5):
        log = PlainLog(MemoryDisk(volume))
        ahead = segment_name(log.committer.placer.write_point.number + 1)
        log.close()
        volume.cut(ahead, size_bytes)
    log = PlainLog(MemoryDisk(volume))
    assert len(log.committer.placer.spares.small) == SPARES
    assert sum(name.startswith("spare") for name in volume.seen) == SPARES


async def test_a_log_goes_on_without_spares_where_no_descriptor_is_left_for_them(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    disk = MemoryDisk(Volume())
    create, refused = disk.create, list[str]()

    def scarce(name: str) -> File:
        if name.startswith("spare"):
            refused.append(name)
            raise OSError(errno.EMFILE, "refused")
        return create(name)

    async with open_log(disk, SMALL, in_thread=inline) as log:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "create", scarce)
            log.keep_for_snapshot(SNAPSHOT_BYTES)
            await until(lambda: refused, 1.0)
            await virtual_sleep(3 * SCARCE_S_MAX)
        for number in range(60):
            await log.wait_durable(*await log.append([publish(number, 300)]))
        assert log.failure is None
        await until(lambda: len(log._committer.placer.spares.small) == SPARES, 10.0)


def test_a_snapshot_does_not_leave_a_segment_to_which_messages_are_on_their_way() -> None:
    """Found: nothing referred to them yet, so the segment that was being compacted into was left, with what had been
    carried there; with three segments there was no room for the rest."""
    log = opened(room())
    fill(log)
    while not log.committer.placer.can_leave:
        log.write(carried(1))
    assert log.committer.segment_spent
    log.append(carried(1))
    assert not log.committer.segment_spent
    assert log.committer.begin(0.0) is not None
    assert not log.committer.segment_spent
    log.committer.done()
    assert log.committer.segment_spent
    log.committer.placer.backlog.moved_bytes = 1
    assert not log.committer.segment_spent
