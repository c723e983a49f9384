"""Opening a store: where it begins, what it tells, what it copes with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from durable.errors import NotInLog, RecordDamaged, StoreFailed, StoreFull
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.header import STORE_NAME, decode_store, segment_name
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.real_disk import RealDisk
from durable.log.record import Record
from durable.log.report import LogGap
from tests.full_logs import Tight, in_spare, room
from tests.logs import SMALL, PlainLog, acks, publish


def store(count: int = 40) -> Volume:
    volume = Volume()
    log = PlainLog(MemoryDisk(volume))
    for number in range(count):
        log.write(publish(number, 300))
    log.close()
    return volume


def test_from_a_checkpoint_on_only_what_follows_is_read() -> None:
    volume = store()
    seen: list[Record] = []
    log = PlainLog(MemoryDisk(volume), start=30, visit=seen.append)
    assert [one.position for one in seen] == list(range(30, 41))
    assert log.report.bytes_read < 3 * SMALL.segment_bytes
    assert log.report.gaps == ()
    assert [one.position for one in log.records()] == list(range(1, 41)), "all can still be read"
    assert log.write(publish(99)) == range(41, 42)


def test_everything_is_visited_in_order() -> None:
    seen: list[Record] = []
    report = PlainLog(MemoryDisk(store()), visit=seen.append).report
    assert [one.position for one in seen] == list(range(1, 41))
    assert (report.start, report.end, report.records) == (1, 41, 40)
    assert (report.torn, report.damage, report.absent) == (None, (), ())
    assert "40 records" in str(report)


def test_zeros_that_were_never_written_are_not_read_and_dirt_behind_them_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(SMALL, segment_bytes=8 << 20)
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), config)
    log.write(publish(1))
    end_at = 64 + publish(1).size_bytes
    log.close()
    read: list[int] = []
    pread = MemoryFile.pread

    def counted(file: MemoryFile, size_bytes: int, at: int) -> bytes:
        read.append(size_bytes)
        return pread(file, size_bytes, at)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFile, "pread", counted)
        report = PlainLog(MemoryDisk(volume.copy()), config).report
    assert sum(read) < 4 << 20
    assert (report.records, report.torn, report.bytes_read) == (1, None, publish(1).size_bytes)
    volume.flip(segment_name(1), 8 * (7 << 20))
    torn = PlainLog(MemoryDisk(volume), config).report.torn
    assert torn is not None
    assert (torn.at, torn.size_bytes) == (end_at, (7 << 20) + 1 - end_at)


def test_what_a_start_has_read_of_them_the_next_one_does_not_read_again(tmp_path: Path) -> None:
    config = replace(SMALL, segment_bytes=8 << 20)
    log = PlainLog(RealDisk(tmp_path), config)
    log.write(publish(1))
    log.close()
    for _ in range(2):
        PlainLog(RealDisk(tmp_path), config).close()
        assert RealDisk(tmp_path).open(segment_name(1)).data_end() < 1 << 16


def test_dirt_that_cannot_be_written_over_is_cut_off() -> None:
    """And the segment grows again, to its size."""
    volume = store()
    log = PlainLog(MemoryDisk(volume.copy()))
    point, before = log.committer.placer.write_point, log.contents()
    name = segment_name(point.number)
    volume.flip(name, 8 * (SMALL.segment_bytes - 200))
    refused = range(point.at, SMALL.segment_bytes)
    log = PlainLog(Tight(volume, name, refused))
    assert log.contents() == before
    assert not any(volume.seen[name].seen[point.at :])
    assert len(volume.seen[name].seen) == SMALL.segment_bytes


def test_a_segment_that_was_cut_is_of_the_size_it_has_now() -> None:
    volume = store()
    (*_, name) = [name for name in volume.seen if name.startswith("msgs.")][:-1]
    volume.cut(name, 400)
    log = PlainLog(MemoryDisk(volume))
    last = log.store.segments.last
    assert last is not None
    assert (
        last.capacity_bytes
        == log.committer.placer.write_point.capacity_bytes
        == SMALL.segment_bytes
    )


def test_segments_that_are_not_read_are_of_the_size_they_have() -> None:
    volume = room()
    log = in_spare(volume)
    while log.committer.placer.spares.small:
        log.write(acks(7, 0, 1))
    sizes = {
        one.number: len(volume.seen[segment_name(one.number)].seen) for one in log.store.segments
    }
    assert list(sizes.values())[-2] < SMALL.segment_bytes, "before the last"
    end = log.committer.end
    log.close()
    log = PlainLog(MemoryDisk(volume), start=end)
    assert {one.number: one.capacity_bytes for one in log.store.segments} == sizes


def test_each_start_has_an_epoch_of_its_own() -> None:
    volume = Volume()
    for epoch in (1, 2, 3):
        log = PlainLog(MemoryDisk(volume))
        log.write(publish(epoch))
        assert log.records()[-1].header.epoch == epoch
        log.close()


def test_a_history_that_was_replaced_is_noticed() -> None:
    """Both records are valid and at home there; only the chain tells."""
    first, second = store(2), store(2)
    a, b = PlainLog(MemoryDisk(first)), PlainLog(MemoryDisk(second))
    a.write(publish(100))
    at = 64 + 2 * publish(0, 300).size_bytes
    a.write(publish(101))
    b.write(publish(200))
    size = publish(0).size_bytes
    taken = second.seen[segment_name(1)].seen[at : at + size]
    first.seen[segment_name(1)].seen[at : at + size] = taken
    a.close()
    log = PlainLog(MemoryDisk(first))
    assert len(log.records()) == 4
    assert log.report.gaps == (LogGap(4, 4, synced=True),)
    assert "chain broken before log position 4" in str(log.report)


def test_a_segment_of_another_history_is_noticed_by_the_seal_before_it() -> None:
    """As the one before, where a whole segment was put there, header and all, and all in it belongs together."""
    first, second = store(0), store(0)
    for volume, made in (first, 100), (second, 200):
        log = PlainLog(MemoryDisk(volume))
        while len(log.store.segments) < 2:
            log.write(publish(made))
        begins_at = [*log.store.segments][1].first
        log.close()
    first.seen[segment_name(2)] = second.seen[segment_name(2)]
    log = PlainLog(MemoryDisk(first))
    assert log.report.gaps == (LogGap(begins_at, begins_at, synced=True),)
    assert log.report.damage == ()


def test_freed_segments_are_no_gap_and_lost_ones_are_told() -> None:
    volume = store()
    segments = list(PlainLog(MemoryDisk(volume)).store.segments)
    volume.locked = False
    del volume.seen[segment_name(1)]
    report = PlainLog(MemoryDisk(volume)).report
    assert (report.start, report.gaps, report.absent) == (segments[1].first, (), ())
    volume.locked = False
    del volume.seen[segment_name(3)]
    report = PlainLog(MemoryDisk(volume)).report
    assert report.gaps == ()
    assert report.absent == (LogGap(segments[2].first, segments[2].end),)


def test_what_rots_while_the_log_is_open_is_not_handed_out() -> None:
    volume = store(5)
    log = PlainLog(MemoryDisk(volume))
    at = 64 + 2 * publish(0, 300).size_bytes
    volume.flip(segment_name(1), 8 * (at + 200))
    with pytest.raises(RecordDamaged, match="position 3"):
        log.store.reader.record(3, 6)
    assert [one.position for one in log.records()] == [1, 2, 4, 5]
    with pytest.raises(NotInLog):
        log.store.reader.record(6, 6)


def test_larger_and_smaller_segments_than_before() -> None:
    volume = store(12)
    for size in (8192, 2048, 4096):
        log = PlainLog(MemoryDisk(volume), replace(SMALL, segment_bytes=size))
        before = len(log.records())
        for number in range(30):
            log.write(publish(number, 300))
        assert len(log.records()) == before + 30
        assert log.report.torn is None
        log.close()


def test_a_cut_segment_on_a_full_disk_opens() -> None:
    volume = store(6)
    volume.cut(segment_name(1), 2000)
    volume.capacity_bytes = 1
    log = PlainLog(MemoryDisk(volume))
    assert log.report.torn is not None
    assert len(log.records()) == 4
    log.write(publish(1), acks(7, 0, 1))  # In the segment that had been made ahead.
    with pytest.raises(StoreFull):
        for number in range(100):
            log.write(publish(number))


def test_what_is_cut_on_a_full_disk_is_not_given_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: the file was made shorter, then as long as before, if nobody was faster. Without its
    end there is no room for acks."""
    volume, truncate, name = store(6), MemoryFile.truncate, segment_name(1)
    log = PlainLog(MemoryDisk(volume))
    end_at = log.committer.placer.write_point.at
    log.close()
    volume.seen[name].write(b"half a record", end_at)
    volume.capacity_bytes = volume.used_bytes

    def others_take_it(self: MemoryFile, size_bytes: int) -> None:
        truncate(self, size_bytes)
        volume.capacity_bytes = volume.used_bytes

    monkeypatch.setattr(MemoryFile, "truncate", others_take_it)
    log = PlainLog(MemoryDisk(volume))
    assert log.report.torn is not None
    assert log.report.torn.at == end_at
    log.write(acks(7, 0, 1))
    before = log.contents()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.contents() == before
    assert log.report.torn is None
    assert len(volume.seen[name].seen) == SMALL.segment_bytes


def test_an_error_while_opening_is_typed_and_lets_go_of_the_lock() -> None:
    volume = store(3)
    with pytest.raises(StoreFailed, match="cannot be opened"):
        PlainLog(FaultyDisk(volume, Faults(sync_error_at=1)))
    assert not volume.locked


def test_names_that_are_not_ours_do_not_matter_in_a_store() -> None:
    volume = store(3)
    MemoryDisk(volume).create("0a1b2c").close()
    log = PlainLog(MemoryDisk(volume))
    assert len(log.records()) == 3
    assert "0a1b2c" in volume.seen


@pytest.mark.parametrize("damaged", [True, False])
def test_a_store_file_that_cannot_be_written_again_keeps_nothing_from_starting(
    damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: with no byte free, one bit in it did, while every segment says whose it is."""
    volume = store(5)
    before = bytes(volume.seen[STORE_NAME].seen)
    if damaged:
        volume.seen[STORE_NAME].seen[20] ^= 1
    else:
        MemoryDisk(volume).unlink(STORE_NAME)
    volume.capacity_bytes = volume.used_bytes
    for _ in range(2):
        log = PlainLog(MemoryDisk(volume))
        assert [one.position for one in log.records()] == [1, 2, 3, 4, 5]
        log.close()
    assert "damaged or missing" in caplog.text
    volume.capacity_bytes += 2 * SMALL.segment_bytes
    PlainLog(MemoryDisk(volume)).close()
    assert decode_store(bytes(volume.seen[STORE_NAME].seen)) == decode_store(before)


def test_a_new_store_needs_its_file() -> None:
    with pytest.raises(StoreFailed, match="free some space"):
        PlainLog(MemoryDisk(Volume(capacity_bytes=0)))
