"""Reading a segment that recovery took on trust: what has been gone through once is not again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pytest

from durable.log.config import LogConfig
from durable.log.marks import STRIDE_BYTES
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.reader import WINDOW_BYTES
from tests.logs import PlainLog, publish

CONFIG = LogConfig(segment_bytes=1 << 20, reserve_bytes=0, free_bytes_min=0)
SIZE_BYTES = 4000


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
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The byte of each read."""
    found: list[int] = []
    pread = MemoryFile.pread

    def noting(self: MemoryFile, size_bytes: int, at: int) -> bytes:
        found.append(at)
        return pread(self, size_bytes, at)

    monkeypatch.setattr(MemoryFile, "pread", noting)
    return found


def test_reading_on_and_on_goes_through_a_segment_once(trusted: PlainLog, begun: list[int]) -> None:
    """Found: each read began at the first byte of the segment."""
    reader, end = trusted.store.reader, trusted.committer.durable_end
    position, segment = 1, next(iter(trusted.store.segments))
    seen: list[int] = []
    while position < segment.end:
        before, reached = len(begun), (position - 1) * SIZE_BYTES
        found = reader.some(position, end, 3 * SIZE_BYTES)
        assert begun[before] > reached - STRIDE_BYTES - SIZE_BYTES
        seen += [one.position for one in found]
        position = seen[-1] + 1
    assert seen == list(range(1, position))


def test_one_read_of_the_end_makes_it_near_for_the_next(
    trusted: PlainLog, begun: list[int]
) -> None:
    reader, end = trusted.store.reader, trusted.committer.durable_end
    segment = next(iter(trusted.store.segments))
    last = segment.end - 1
    assert reader.record(last, end).position == last
    for position in range(1, segment.end):
        before = len(begun)
        assert reader.record(position, end).position == position
        assert len(begun) - before <= 1 + (SIZE_BYTES + STRIDE_BYTES) // WINDOW_BYTES
        assert begun[before] > (position - 1) * SIZE_BYTES - STRIDE_BYTES - SIZE_BYTES


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
    assert [segment.near(position) for position in range(1, segment.end)] == [
        read_whole.near(position) for position in range(1, segment.end)
    ]
