"""A disk that fills up, fails and belongs to somebody else."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from random import Random
from zlib import crc32

import pytest

from durable.errors import ForeignStore, NewerFormat, StoreBusy, StoreFailed, StoreFull, StoreInUse
from durable.log.committing import WAITING_BYTES, Sync
from durable.log.disk import File
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.header import STORE_NAME, encode_store, segment_name
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.placing import AheadState
from durable.log.record import Kind
from mesh.errors import TooLarge
from tests.full_logs import carried, fill, remove
from tests.logs import LARGE, SMALL, STORE_ID, PlainLog, acks, definitions, publish


def test_a_full_disk_refuses_publishes_and_takes_acks() -> None:
    volume = Volume(capacity_bytes=3 * SMALL.segment_bytes)
    log = PlainLog(MemoryDisk(volume))
    published = fill(log)
    assert published > 10
    log.write(acks(7, 0, published))
    log.write(definitions("as well"))
    with pytest.raises(StoreFull):
        log.write(publish(1, 200))
    before = log.contents()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.contents() == before
    with pytest.raises(StoreFull):
        log.write(publish(1, 200))


def test_a_disk_of_which_the_rest_is_left_to_others_is_said_to_be_full_for_that_reason() -> None:
    """Found: with `--free-min`, "a segment needs 16777216 bytes, 74430816256 are free"."""
    config = replace(SMALL, free_bytes_min=5 * SMALL.segment_bytes)
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=8 * SMALL.segment_bytes)), config)
    fill(log)
    with pytest.raises(StoreFull) as refused:
        log.write(publish(0, 200))
    error = refused.value
    assert error.free_bytes > config.segment_bytes
    assert error.kept_bytes == config.free_bytes_min
    assert (
        f"a segment needs {config.segment_bytes} bytes (segment_bytes, --segment-size) besides "
        f"{config.free_bytes_min} that must stay free (free_bytes_min, --free-min), {error.free_bytes} are free"
        in str(error)
    )


@pytest.mark.parametrize("letter", [False, True])
def test_a_full_disk_keeps_room_for_what_gives_space_back(letter: bool) -> None:
    """Found: publishes took all of the last segment. What was rejected had no room for its copies then, what
    was left of every segment could not be carried forward, and no space came back."""
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=3 * SMALL.segment_bytes)))
    published, taken = fill(log), 0
    with pytest.raises(StoreFull):
        for number in range(100):
            drafts = [carried(number)]
            if letter:
                drafts = [publish(number, 200), acks(7, number, number + 1)]
            log.write(*drafts)
            taken += sum(draft.size_bytes for draft in drafts)
    kept = SMALL.compaction_share_max * SMALL.segment_bytes
    largest = publish(1, 200).size_bytes
    assert kept - largest < taken < kept + 2 * largest
    with pytest.raises(StoreFull):
        log.write(publish(published, 200))
    log.write(acks(7, 0, published))


def test_what_is_kept_for_that_is_a_part_of_the_segment_that_is_written() -> None:
    """Found: of that which was configured, so a smaller one of before, nearly empty, took nothing."""
    volume = Volume(capacity_bytes=3 * SMALL.segment_bytes)
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(0, 200))
    log.close()
    volume.seen.pop(segment_name(2))
    larger = replace(SMALL, segment_bytes=4 * SMALL.segment_bytes)
    assert fill(PlainLog(MemoryDisk(volume), larger), larger.segment_bytes) > 3


def test_the_reserve_ends_too() -> None:
    volume = Volume(capacity_bytes=2 * SMALL.segment_bytes)
    log = PlainLog(MemoryDisk(volume))
    fill(log)
    with pytest.raises(StoreFull):
        for number in range(100):
            log.write(acks(7, number, number + 1))
    assert number >= SMALL.reserve_bytes // acks(7, 0, 1).size_bytes - 1
    assert PlainLog(MemoryDisk(volume.copy())).contents() == log.contents()


def test_what_is_kept_for_a_snapshot_is_for_nothing_else() -> None:
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=2 * SMALL.segment_bytes)))
    log.committer.placer.keep_for_snapshot(300)
    declared = definitions("x" * 60)
    log.write(declared)
    fill(log)
    snapshot = definitions("y" * 250)._replace(snapshot=True)
    while snapshot.size_bytes < 300 + declared.size_bytes:
        snapshot = snapshot._replace(body=bytes(snapshot.body) + b"y")
    for draft in (acks(7, 0, 1), definitions("again"), snapshot._replace(patient=True)):
        with pytest.raises(StoreFull):
            for _ in range(100):
                log.write(draft)
    log.write(snapshot)
    for draft in (acks(7, 0, 1), snapshot):
        with pytest.raises(StoreFull):
            log.write(draft)


def test_what_is_appended_at_once_leaves_what_is_kept_for_a_snapshot() -> None:
    """But for the snapshot itself: however large, it takes most of a segment."""
    log = PlainLog(MemoryDisk())
    placer, everything = log.committer.placer, log.committer.placer.append_bytes_max
    placer.keep_for_snapshot(800)
    assert placer.append_bytes_max == everything - 800
    placer.keep_for_snapshot(1 << 30)
    assert placer.append_bytes_max == everything - SMALL.segment_bytes // 4
    large = publish(1, everything - publish(1).size_bytes + 40)
    with pytest.raises(TooLarge, match=f"exceeds the limit of {placer.append_bytes_max} bytes"):
        log.append(large)
    snapshot = large._replace(kind=Kind.DEFINITIONS, snapshot=True)
    for drafts in ([snapshot, acks(7, 0, 1)], [snapshot, snapshot]):
        with pytest.raises(TooLarge):
            log.append(*drafts)
    log.write(snapshot)


def test_publishes_resume_when_there_is_space() -> None:
    volume = Volume(capacity_bytes=2 * SMALL.segment_bytes)
    log = PlainLog(MemoryDisk(volume))
    published = fill(log)
    volume.capacity_bytes += SMALL.segment_bytes
    log.make_segment()
    log.write(publish(published, 200))
    assert log.records()[-1].targets[0].first == published


def test_space_comes_back_by_freeing_a_segment() -> None:
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=3 * SMALL.segment_bytes)))
    fill(log)
    (gone,) = log.store.segments.unused(log.committer.durable_end)
    log.store.segments.remove([gone])
    remove(log.store, gone.number)
    log.make_segment()
    log.write(publish(1, 200))
    assert log.records()[0].position == gone.end


def test_some_space_is_left_to_others() -> None:
    config = replace(SMALL, free_bytes_min=10_000)
    volume = Volume(capacity_bytes=20_000)
    log = PlainLog(MemoryDisk(volume), config)
    fill(log)
    assert volume.free_bytes >= 10_000


def test_what_is_made_in_place_of_a_freed_one_leaves_others_what_they_had() -> None:
    """Found: after a snapshot had taken what is kept for it, what it had freed was not taken again."""
    volume = Volume(capacity_bytes=20_000)
    log = PlainLog(MemoryDisk(volume), replace(SMALL, free_bytes_min=10_000))
    fill(log)
    volume.capacity_bytes = volume.used_bytes
    (gone,) = log.store.segments.unused(log.committer.durable_end)
    remove(log.store, gone.number)
    log.make_segment()
    assert volume.used_bytes == volume.capacity_bytes
    volume.capacity_bytes += 10_000
    log.write(publish(1, 200))
    fill(log)
    assert volume.free_bytes == 10_000


def test_a_snapshot_waits_until_it_is_known_whether_it_has_to_take_what_is_kept() -> None:
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=2 * SMALL.segment_bytes)))
    placer, snapshot = log.committer.placer, definitions("y" * 250)._replace(snapshot=True)
    placer.keep_for_snapshot(snapshot.size_bytes)
    fill(log)
    with pytest.raises(StoreFull):
        for number in range(100):
            log.write(carried(number))
    placer.ahead = AheadState.WANTED
    with pytest.raises(StoreBusy):
        placer.place([snapshot])
    placer.ahead = AheadState.REFUSED
    log.write(snapshot)


def test_no_space_in_the_middle_of_a_write_loses_nothing() -> None:
    """A file system that does not keep what it allocated: the commit is carried out again later."""
    disk = FaultyDisk(Volume())
    log = PlainLog(disk)
    log.append(publish(1))
    disk.faults.write_error = errno.ENOSPC
    commit = log.committer.begin(0.0)
    assert commit is not None
    with pytest.raises(StoreFull):
        log.store.carry_out(commit)
    log.committer.refused(0)
    with pytest.raises(StoreFull) as told:
        log.committer.append([publish(2), publish(3)])
    assert told.value.needed_bytes == publish(2).size_bytes + publish(3).size_bytes
    (ack,) = log.committer.append([acks(7, 0, 1)])
    disk.faults.write_error = None
    log.store.carry_out(commit)
    log.committer.done()
    log.write(publish(2))
    assert [one.position for one in log.records()] == [1, ack, 3]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_for_another_name_is_full_and_no_more(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Found by reading: bytes were free, but no inode, and the store stopped for good."""
    log, create = PlainLog(MemoryDisk()), MemoryDisk.create

    def refuse(self: MemoryDisk, name: str) -> File:
        raise OSError(code, os.strerror(code), name)

    monkeypatch.setattr(MemoryDisk, "create", refuse)
    with pytest.raises(StoreFull):
        for number in range(100):
            log.write(publish(number))
    log.write(acks(7, 0, 1))
    monkeypatch.setattr(MemoryDisk, "create", create)
    log.make_segment()
    log.write(publish(100))


def test_nothing_is_confirmed_after_a_failed_sync() -> None:
    volume = Volume()
    disk = FaultyDisk(volume)
    log = PlainLog(disk)
    log.write(publish(1))
    disk.faults.sync_error_at = disk.faults.syncs + 1
    log.append(publish(2))
    with pytest.raises(OSError, match="fdatasync"):
        log.commit()
    syncs = disk.faults.syncs
    assert log.committer.durable_end == 2
    assert log.committer.begin(0.0) is None
    with pytest.raises(StoreFailed, match="fdatasync failed"):
        log.committer.append([acks(7, 0, 1)])
    assert disk.faults.syncs == syncs, "no second sync"
    assert [one.position for one in log.records()] == [1]
    left = PlainLog(MemoryDisk(volume.after_power_cut(Random(0))))
    assert 1 in left.contents()


@pytest.mark.parametrize(("earlier", "sync"), [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1)])
def test_what_a_failed_sync_has_left_in_the_cache_is_written_by_the_next_start(
    earlier: int, sync: int
) -> None:
    """Found by reading: its pages are clean, no sync writes them, and the next start confirmed it."""
    volume = Volume()
    disk = FaultyDisk(volume)
    log = PlainLog(disk)
    for number in range(earlier):
        log.write(publish(number, 1000))
    log.append(publish(earlier, 1000), publish(earlier + 1, 1000))
    disk.faults.sync_error_at = disk.faults.syncs + sync
    with pytest.raises(OSError, match="fdatasync"):
        log.commit()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(earlier + 2, 1000))
    confirmed = log.contents()
    log.close()
    for seed in range(10):
        left = PlainLog(MemoryDisk(volume.after_power_cut(Random(seed))))
        assert left.contents() == confirmed
        assert not left.report.gaps


def test_a_start_that_finds_no_room_to_write_that_confirms_nothing() -> None:
    """Found by reading: where writing over takes space, as where files are copied on write, it was left
    out on a full disk. What only the cache had was there for all to read, and gone after a power cut."""
    volume = Volume()
    disk = FaultyDisk(volume)
    log = PlainLog(disk)
    log.append(publish(0))
    disk.faults.sync_error_at = disk.faults.syncs + 1
    with pytest.raises(OSError, match="fdatasync"):
        log.commit()
    log.close()
    with pytest.raises(StoreFailed, match="free some space"):
        PlainLog(FaultyDisk(volume, Faults(write_error=errno.ENOSPC)))
    log = PlainLog(FaultyDisk(volume))
    assert len(log.records()) == 1
    log.close()
    assert len(PlainLog(MemoryDisk(volume.after_power_cut(Random(0)))).records()) == 1


def test_the_memory_disk_tells_the_truth_about_a_failed_sync() -> None:
    """What a second fdatasync would have confirmed is not there: the reason for the rule above."""
    volume = Volume()
    disk = FaultyDisk(volume, Faults(sync_error_at=1))
    file = disk.create("one")
    disk.sync_directory()
    file.pwritev([b"confirmed?"], 0)
    with pytest.raises(OSError, match="fdatasync"):
        file.fdatasync()
    file.fdatasync()
    assert bytes(file.pread(10, 0)) == b"confirmed?"
    left = {bytes(volume.after_power_cut(Random(seed)).seen["one"].seen) for seed in range(20)}
    assert b"confirmed?" not in left


def test_too_much_at_once_is_refused_and_the_limit_named() -> None:
    log = PlainLog(MemoryDisk())
    with pytest.raises(TooLarge, match="exceeds the limit of 3440 bytes"):
        log.append(publish(1, 4000))
    log.write(publish(1, 3440 - publish(1).size_bytes + 40))


def test_what_waits_is_bounded_by_the_memory_it_takes() -> None:
    log = PlainLog(MemoryDisk(), replace(SMALL, pending_bytes_max=2 * WAITING_BYTES + 500))
    log.committer.append([publish(1)])
    log.committer.append([publish(2)])
    with pytest.raises(StoreBusy):
        log.committer.append([publish(3)])
    assert log.committer.end == 3, "nothing was taken"


def test_what_is_larger_than_may_wait_needs_room_for_one_commit_only() -> None:
    """It was taken only once nothing waited, which may never be."""
    config = replace(LARGE, pending_bytes_max=8000 + WAITING_BYTES, commit_bytes_max=4000)
    log = PlainLog(MemoryDisk(), config)
    log.committer.append([publish(1, 3000)])
    log.committer.append([publish(2, 20_000)])
    with pytest.raises(StoreBusy):
        log.committer.append([publish(3)])


def test_all_or_none_of_an_append() -> None:
    log = PlainLog(MemoryDisk(Volume(capacity_bytes=SMALL.segment_bytes)))
    with pytest.raises(StoreFull):
        for number in range(0, 1000, 3):
            log.write(*(publish(number + one, 200) for one in range(3)))
    assert len(log.records()) % 3 == 0
    assert log.committer.pending_bytes == 0


def test_one_sync_for_all_that_gathered() -> None:
    log = PlainLog(MemoryDisk())
    log.append(publish(1), acks(7, 0, 1))
    log.append(definitions(1))
    commit = log.committer.begin(0.0)
    assert commit is not None
    log.append(publish(2))
    assert log.committer.begin(0.0) is None, "one at a time"
    assert [isinstance(step, Sync) for step in commit.steps] == [False, True]
    assert commit.end == 4


# Whose directory it is


def test_two_stores_in_one_directory() -> None:
    volume = Volume()
    first = PlainLog(MemoryDisk(volume))
    with pytest.raises(StoreInUse, match="stop that broker"):
        PlainLog(MemoryDisk(volume))
    first.write(publish(1))
    first.close()
    assert len(PlainLog(MemoryDisk(volume)).records()) == 1


@pytest.mark.parametrize("name", ["ibdata1", "definitions.amqp", "notes.txt"])
def test_a_directory_of_somebody_else_is_left_alone(name: str) -> None:
    volume = Volume()
    MemoryDisk(volume).create(name)
    for _ in range(2):  # And the refused one does not keep the lock.
        with pytest.raises(ForeignStore, match=name):
            PlainLog(MemoryDisk(volume))
    assert list(volume.seen) == [name]


def test_segments_of_somebody_else_are_left_alone() -> None:
    """LavinMQ's files have the same names."""
    volume = Volume()
    MemoryDisk(volume).create(segment_name(1)).pwritev([b"\4\0\0\0 messages"], 0)
    with pytest.raises(ForeignStore, match="msgs"):
        PlainLog(MemoryDisk(volume))
    assert bytes(volume.seen[segment_name(1)].seen) == b"\4\0\0\0 messages"


def test_files_of_two_stores() -> None:
    volume, other = Volume(), Volume()
    PlainLog(MemoryDisk(volume)).write(publish(1))
    log = PlainLog(MemoryDisk(other), store_id=b"o" * 16)
    log.write(publish(1))
    volume.seen[segment_name(2)] = other.seen[segment_name(1)]
    volume.locked = False
    volume.seen[STORE_NAME] = other.seen[STORE_NAME]
    with pytest.raises(ForeignStore, match="stores"):
        PlainLog(MemoryDisk(volume))


def test_a_newer_format_is_refused() -> None:
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    log.write(publish(1))
    log.close()
    newer = bytearray(encode_store(STORE_ID, 0))
    newer[8] = 2
    newer[12:16] = crc32(newer[16:], crc32(newer[:12])).to_bytes(4, "little")
    volume.seen[STORE_NAME].seen[:] = newer
    before = {name: bytes(inode.seen) for name, inode in volume.seen.items()}
    with pytest.raises(NewerFormat, match="version 2") as caught:
        PlainLog(MemoryDisk(volume))
    assert (caught.value.version, caught.value.known) == (2, 1)
    assert before == {name: bytes(inode.seen) for name, inode in volume.seen.items()}
