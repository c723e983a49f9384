"""Reading on: nothing is read twice or in vain, and of a segment that recovery took on trust, what has been gone
through once is not again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from random import Random

import pytest

from durable.log.config import LogConfig
from durable.log.disk import File
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.reader import WINDOW_BYTES, Reader
from durable.log.sparse_index import STRIDE_BYTES
from tests.logs import PlainLog, publish

CONFIG = LogConfig(segment_bytes=1 << 20, reserve_bytes=0, free_bytes_min=0)
SIZE_BYTES = 4000
LIMIT_BYTES = 400_000


@pytest.fixture
def volume() -> Volume:
    return Volume()


@pytest.fixture
def trusted(volume: Volume) -> PlainLog:
    """Opened from its second segment on."""
    log = PlainLog(MemoryDisk(volume), CONFIG)
    while len(log.store.segments) < 2:
        log.write(publish(log.committer.end, SIZE_BYTES))
    last = log.store.segments.last
    assert last is not None
    log.close()
    return PlainLog(MemoryDisk(volume), CONFIG, start=last.first)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The bytes of each read."""
    found: list[range] = []
    pread = MemoryFile.pread

    def noting(self: MemoryFile, size_bytes: int, at: int) -> bytes:
        data = pread(self, size_bytes, at)
        found.append(range(at, at + len(data)))
        return data

    monkeypatch.setattr(MemoryFile, "pread", noting)
    return found


def test_reading_on_and_on_goes_through_a_segment_once(
    trusted: PlainLog, reads: list[range]
) -> None:
    """Found: each read began at the first byte of the segment."""
    reader, end = trusted.store.reader, trusted.committer.durable_end
    position, segment = 1, next(iter(trusted.store.segments))
    seen: list[int] = []
    while position < segment.end:
        before, reached = len(reads), (position - 1) * SIZE_BYTES
        found = reader.read_some(position, end, 3 * SIZE_BYTES)
        assert reads[before].start > reached - STRIDE_BYTES - SIZE_BYTES
        seen += [one.position for one in found]
        position = seen[-1] + 1
    assert seen == list(range(1, position))


def test_one_read_of_the_end_makes_it_near_for_the_next(
    trusted: PlainLog, reads: list[range]
) -> None:
    reader, end = trusted.store.reader, trusted.committer.durable_end
    segment = next(iter(trusted.store.segments))
    last = segment.end - 1
    assert reader.record(last, end).position == last
    for position in range(1, segment.end):
        before = len(reads)
        assert reader.record(position, end).position == position
        assert len(reads) - before <= 1 + (SIZE_BYTES + STRIDE_BYTES) // WINDOW_BYTES
        assert reads[before].start > (position - 1) * SIZE_BYTES - STRIDE_BYTES - SIZE_BYTES


def test_readers_that_go_through_it_at_once_leave_the_same_marks(
    trusted: PlainLog, volume: Volume
) -> None:
    reader, end = trusted.store.reader, trusted.committer.durable_end
    segment = next(iter(trusted.store.segments))

    def positions(start: int) -> Iterator[int]:
        for one in reader.records(start, end):
            yield one.position

    for _ in zip_longest(*(positions(start) for start in (1, 50, 2, 100))):
        """Each has its turn."""
    trusted.close()
    read_whole = next(iter(PlainLog(MemoryDisk(volume), CONFIG).store.segments))
    assert [segment.lookup(position) for position in range(1, segment.end)] == [
        read_whole.lookup(position) for position in range(1, segment.end)
    ]


@pytest.mark.parametrize("size_bytes", [100, 4000, 50_000, 100_000, 300_000])
def test_what_the_log_has_written_is_read_once(
    volume: Volume, reads: list[range], size_bytes: int
) -> None:
    """Found: a record that was larger than a read was read twice, and the one that was too much in vain."""
    log = PlainLog(MemoryDisk(volume), replace(CONFIG, segment_bytes=1 << 23))
    for _ in range(3_000_000 // size_bytes):
        log.write(publish(log.committer.end, size_bytes))
    reads.clear()
    position, end = 1, log.committer.durable_end
    seen: list[int] = []
    while position < end:
        found = log.store.reader.read_some(position, end, LIMIT_BYTES)
        assert sum(one.header.body_bytes for one in found) <= LIMIT_BYTES or len(found) == 1
        seen += [one.position for one in found]
        position = seen[-1] + 1
    assert seen == [*range(1, end)]
    # Of the last one no mark says how large it is.
    vain_bytes = WINDOW_BYTES if size_bytes > WINDOW_BYTES else 0
    assert sum(map(len, reads)) == log.committer.committed_bytes + vain_bytes
    least_bytes = max(LIMIT_BYTES - STRIDE_BYTES - size_bytes, size_bytes)  # Or a record alone.
    assert len(reads) <= 1 + log.committer.committed_bytes // least_bytes


def test_records_of_any_size_are_read_on_and_on(volume: Volume) -> None:
    rng = Random(7)
    log = PlainLog(MemoryDisk(volume), CONFIG)
    for _ in range(200):
        log.write(publish(log.committer.end, rng.choice([50, 500, 5000, 70_000, 200_000])))
    reader, end = log.store.reader, log.committer.durable_end
    for limit_bytes in (1, 1000, 100_000, 1 << 20):
        positions: list[int] = []
        while not positions or positions[-1] < end - 1:
            found = reader.read_some(positions[-1] + 1 if positions else 1, end, limit_bytes)
            assert sum(one.header.body_bytes for one in found) <= limit_bytes or len(found) == 1
            positions += [one.position for one in found]
        assert positions == [*range(1, end)]


def test_behind_damage_that_is_all_there_was_to_read_it_goes_on(
    volume: Volume, reads: list[range]
) -> None:
    log = PlainLog(MemoryDisk(volume), CONFIG)
    for _ in range(150):
        log.write(publish(log.committer.end, SIZE_BYTES))
    reader, end = log.store.reader, log.committer.durable_end
    record_bytes = log.committer.committed_bytes // 150
    first, behind = 20, 140  # More than is read at a time.
    for position in range(first, behind):
        volume.flip(segment_name(1), 8 * (SEGMENT_HEADER_BYTES + (position - 1) * record_bytes))
    reads.clear()
    assert [one.position for one in reader.read_some(first, end, SIZE_BYTES)] == [behind]
    assert [one.start for one in reads[1:]] == [one.stop for one in reads[:-1]], "searched once"


def test_what_is_far_behind_damage_is_not_read_at_once(
    volume: Volume, reads: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.log.reader.AT_ONCE_BYTES", 2 * WINDOW_BYTES)
    log = PlainLog(MemoryDisk(volume), CONFIG)
    for size_bytes in (2 * STRIDE_BYTES, 2 * WINDOW_BYTES, SIZE_BYTES):
        log.write(publish(log.committer.end, size_bytes))
    segment = log.store.segments.last
    assert segment is not None
    volume.flip(segment_name(1), 8 * segment.lookup(2))
    reads.clear()
    found = log.store.reader.read_some(2, log.committer.durable_end, 1000)
    assert [one.position for one in found] == [3]
    assert max(map(len, reads)) == WINDOW_BYTES


def test_where_a_segment_was_freed_meanwhile_the_next_one_is_read(volume: Volume) -> None:
    log = PlainLog(MemoryDisk(volume), CONFIG)
    while len(log.store.segments) < 2:
        log.write(publish(log.committer.end, 300_000))
    first, second = log.store.segments
    for _ in range(5):
        log.write(publish(log.committer.end, SIZE_BYTES))
    reader, end = log.store.reader, log.committer.durable_end
    file = reader._file

    def opened(number: int) -> File:
        if number == first.number:
            raise FileNotFoundError
        return file(number)

    gone = Reader(log.store.segments, reader._seed, opened, reader._decrypt)
    found = [one.position for one in gone.read_some(1, end, LIMIT_BYTES)]
    assert found == [*range(second.first, end)]
