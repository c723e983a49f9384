"""A start in the middle of a segment, from marks that checkpoints have kept, finds what one from its front
does, whatever has become of the file behind it, and reads less."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.log.config import LogConfig
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.marks import STRIDE_BYTES, Marks, decode_marks
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.recovery import Beginning
from tests.logs import PlainLog, publish

CONFIG = LogConfig(segment_bytes=1 << 20, reserve_bytes=0, free_bytes_min=0)
LARGE_BYTES = 50_000

Places = list[tuple[int, int]]


@st.composite
def places(draw: st.DrawFn) -> Places:
    """Log positions and bytes of the records of a segment."""
    position, at, found = draw(st.integers(1, 1 << 40)), SEGMENT_HEADER_BYTES, []
    for step, size in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(9, 20_000)))):
        found.append((position, at))
        position, at = position + step, at + 8 * size
    return found


@given(places(), st.data())
def test_marks_are_near(there: Places, data: st.DataObject) -> None:
    marks = Marks()
    for position, at in there:
        marks.add(position, at)
    wanted = data.draw(st.sampled_from([position for position, _ in there] or [5]))
    index = bisect_right(there, (wanted, 1 << 32)) - 1
    for found in (marks, decode_marks(marks.encode(wanted))):
        mark = found.near(wanted)
        if index < 0:
            assert mark is None
        else:
            assert mark in there[: index + 1]
            assert there[index][1] - mark.at < STRIDE_BYTES
    last = decode_marks(marks.encode(wanted)).near(1 << 60)
    assert last is None or last.position <= wanted


def test_what_is_no_marks() -> None:
    with pytest.raises(ValueError, match="13 bytes of marks are no multiple of 12"):
        decode_marks(bytes(13))


class Log:
    """With records of some size in its two segments, and what a root would have said at some moment."""

    def __init__(self, sizes: list[int]) -> None:
        self.volume = Volume()
        log = PlainLog(MemoryDisk(self.volume), CONFIG)
        for _ in range(25):  # A segment, and a little of the next.
            log.write(publish(log.committer.end, LARGE_BYTES))
        for size in sizes:
            log.write(publish(log.committer.end, size))
        self.end, self.segments = log.committer.end, log.store.segments
        last = self.segments.last
        assert last is not None
        self.first, self.name, self.end_at = last.first, segment_name(last.number), last.end_at
        log.close()

    def opened(self, start: int, marks: bytes) -> tuple[PlainLog, list[int]]:
        """A copy, and the log positions that were visited."""
        visited: list[int] = []
        log = PlainLog(
            MemoryDisk(self.volume.copy()), CONFIG,
            start=lambda _id, _cipher: Beginning(start, range(start, start + 1), marks),
            visit=lambda record: visited.append(record.position),
        )  # fmt: skip
        return log, visited

    def spoil(self, at: int, size_bytes: int) -> None:
        file = MemoryDisk(self.volume).open(self.name)
        file.pwritev([b"\x5a" * size_bytes], at)
        file.fdatasync()


SIZES = st.lists(st.sampled_from([8, 100, 9_000, LARGE_BYTES]), min_size=1, max_size=15)


@settings(max_examples=60)
@given(SIZES, st.data())
def test_a_start_from_a_mark_finds_what_one_from_the_front_does(
    sizes: list[int], data: st.DataObject
) -> None:
    there = Log(sizes)
    start = data.draw(st.integers(there.first, there.end - 1))
    marks = there.segments.marks(start)
    mark = decode_marks(marks).near(start)
    assert mark is not None
    if data.draw(st.booleans()):  # Before the mark nobody looks: that is what it is for.
        at = data.draw(st.integers(mark.at, there.end_at - 1))
        there.spoil(at, data.draw(st.sampled_from([1, 60, 100_000])))
    front, found = there.opened(start, b"")
    log, visited = there.opened(start, marks)
    assert visited == found
    assert log.store.committer.placer.cursor == front.store.committer.placer.cursor
    assert (log.report.gaps, log.report.damage) == (front.report.gaps, front.report.damage)
    assert log.report.bytes_read <= front.report.bytes_read + 200
    written = log.write(publish(9, 100))
    assert written == front.write(publish(9, 100))
    assert log.contents() == front.contents()


def test_it_reads_only_what_is_behind_the_mark() -> None:
    there = Log([LARGE_BYTES] * 12)
    log, visited = there.opened(there.end - 1, there.segments.marks(there.end - 1))
    assert visited == [there.end - 1]
    assert log.report.records <= 1 + STRIDE_BYTES // LARGE_BYTES
    assert log.store.reader.record(there.first, there.end).position == there.first


def test_damage_before_the_mark_is_met_by_who_reads_it() -> None:
    there = Log([LARGE_BYTES] * 12)
    start = there.end - 1
    there.spoil(SEGMENT_HEADER_BYTES + 500, 100)
    log, _ = there.opened(start, there.segments.marks(start))
    assert log.report.damage == ()
    assert there.first not in log.contents()
    assert [*log.contents()][-1] == start


@pytest.mark.parametrize(
    "spoiled", ["its record", "another record's", "another segment's", "no marks"]
)
def test_marks_that_are_not_right_are_not_used(spoiled: str) -> None:
    there = Log([LARGE_BYTES] * 12)
    start = there.end - 1
    marks = there.segments.marks(start)
    mark = decode_marks(marks).near(start)
    assert mark is not None
    if spoiled == "its record":
        there.spoil(mark.at + 20, 1)
    elif spoiled == "another record's":
        moved = Marks()
        moved.add(there.first, SEGMENT_HEADER_BYTES)
        moved.add(start - 5, mark.at)
        marks = moved.encode(start)
    elif spoiled == "another segment's":
        marks = there.segments.marks(there.first - 1)
    else:
        marks = marks[:-1]
    front, found = there.opened(start, b"")
    log, visited = there.opened(start, marks)
    assert visited == found
    assert log.report.records == front.report.records
    assert log.report.damage == front.report.damage
