"""A start in the middle of a segment, from marks that checkpoints have kept, finds what one from its front
does, whatever has become of the file behind it, and reads less."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.errors import StoreKeyMissing
from durable.log.config import LogConfig
from durable.log.encryption import Encryption
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.recovery import StartPoint
from durable.log.sparse_index import STRIDE_BYTES, Marks, decode_marks
from tests.logs import PlainLog, encryption, publish

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
def test_a_lookup_finds_a_mark_that_is_near(there: Places, data: st.DataObject) -> None:
    marks = Marks()
    for position, at in there:
        marks.add(position, at)
    wanted = data.draw(st.sampled_from([position for position, _ in there] or [5]))
    index = bisect_right(there, (wanted, 1 << 32)) - 1
    for found in (marks, decode_marks(marks.encode(wanted))):
        mark = found.lookup(wanted)
        if index < 0:
            assert mark is None
        else:
            assert mark in there[: index + 1]
            assert there[index][1] - mark.at < STRIDE_BYTES
    last = decode_marks(marks.encode(wanted)).lookup(1 << 60)
    assert last is None or last.position <= wanted


@given(places(), st.integers(0, 200_000), st.data())
def test_where_a_read_ends_is_a_mark_as_far_as_may_be_or_the_next_one(
    there: Places, size_bytes: int, data: st.DataObject
) -> None:
    marks = Marks()
    for position, at in there:
        marks.add(position, at)
    position = data.draw(st.sampled_from([position for position, _ in there] or [5]))
    nearest, end = marks.lookup(position), marks.read_end(position, size_bytes)
    all_marks = {found for one, _ in there if (found := marks.lookup(one))}
    behind = sorted(mark for mark in all_marks if mark.position > position)
    if not behind:
        assert end is None
        return
    assert nearest is not None
    within = [mark for mark in behind if mark.at <= nearest.at + size_bytes]
    assert end == (within[-1] if within else behind[0])


def test_what_is_no_marks() -> None:
    with pytest.raises(ValueError, match="13 bytes of marks are not a multiple of 12"):
        decode_marks(bytes(13))


class Log:
    """With records of some size in its two segments, and what a root would have said at some moment."""

    def __init__(self, sizes: list[int], use: Encryption | None = None) -> None:
        self.volume, self.use = Volume(), use
        log = PlainLog(MemoryDisk(self.volume), CONFIG, encryption=use)
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
            start=lambda _id, _cipher: StartPoint(start, range(start, start + 1), marks),
            visit=lambda record: visited.append(record.position), encryption=self.use,
        )  # fmt: skip
        return log, visited

    def spoil(self, at: int, size_bytes: int) -> None:
        """In its last segment."""
        file = MemoryDisk(self.volume).open(self.name)
        file.pwritev([b"\x5a" * size_bytes], at)
        file.fdatasync()


def told(log: PlainLog) -> tuple[object, ...]:
    """What its report says, but for how much was read."""
    report = log.report
    return (report.start, report.end, report.epoch, report.gaps, report.damage, report.torn)


SIZES = st.lists(st.sampled_from([8, 100, 9_000, LARGE_BYTES]), min_size=1, max_size=15)


@settings(max_examples=60)
@given(SIZES, st.data())
def test_a_start_from_a_mark_finds_what_one_from_the_front_does(
    sizes: list[int], data: st.DataObject
) -> None:
    there = Log(sizes)
    start = data.draw(st.integers(there.first, there.end - 1))
    marks = there.segments.encoded_marks(start)
    mark = decode_marks(marks).lookup(start)
    assert mark is not None
    if data.draw(st.booleans()):  # Before the mark nobody looks: that is what it is for.
        at = data.draw(st.integers(mark.at, there.end_at - 1))
        there.spoil(at, data.draw(st.sampled_from([1, 60, 100_000, there.end_at - at])))
    if data.draw(st.booleans()):
        there.spoil(data.draw(st.integers(0, SEGMENT_HEADER_BYTES - 1)), 1)
    front, found = there.opened(start, b"")
    log, visited = there.opened(start, marks)
    assert visited == found
    assert log.store.committer.placer.write_point == front.store.committer.placer.write_point
    assert told(log) == told(front)
    written = log.write(publish(9, 100))
    assert written == front.write(publish(9, 100))
    assert log.contents() == front.contents()


def test_it_reads_only_what_is_behind_the_mark() -> None:
    there = Log([LARGE_BYTES] * 12)
    log, visited = there.opened(there.end - 1, there.segments.encoded_marks(there.end - 1))
    assert visited == [there.end - 1]
    assert log.report.records <= 1 + STRIDE_BYTES // LARGE_BYTES
    assert log.store.reader.record(there.first, there.end).position == there.first
    last = log.store.segments.last
    assert last is not None
    for position in range(there.first, there.end):  # No reader has to begin at the front.
        known = there.segments.find(position)
        assert known is not None
        assert last.lookup(position) == known.lookup(position)


def test_a_segment_of_which_nobody_knows_where_it_begins_is_read_from_its_front() -> None:
    """The oldest there is, and its header is damaged."""
    there = Log([LARGE_BYTES] * 12)
    start = there.end - 1
    MemoryDisk(there.volume).unlink(segment_name(1))
    there.spoil(0, SEGMENT_HEADER_BYTES)
    front, found = there.opened(start, b"")
    log, visited = there.opened(start, there.segments.encoded_marks(start))
    assert visited == found
    assert told(log) == told(front)
    assert log.report.start == there.first


def test_a_commit_of_which_the_first_records_stand_before_the_mark_is_written_again_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may stand in the cache only, as after a sync that failed."""
    there = Log([100])
    log = PlainLog(MemoryDisk(there.volume), CONFIG)
    positions = log.write(*(publish(number, LARGE_BYTES) for number in range(6)))
    marks = log.store.segments.encoded_marks(positions[-1])
    segment = log.store.segments.last
    assert segment is not None
    first_at, end_at = segment.lookup(positions[0]), segment.end_at
    log.close()
    written: list[tuple[int, int]] = []
    pwritev = MemoryFile.pwritev

    def noting(self: MemoryFile, pieces: list[bytes], at: int) -> None:
        written.append((at, at + sum(map(len, pieces))))
        pwritev(self, pieces, at)

    monkeypatch.setattr(MemoryFile, "pwritev", noting)
    _, visited = there.opened(positions[-1], marks)
    assert visited == [positions[-1]]
    assert min(written)[0] <= first_at
    assert max(end for _, end in written) == end_at


def test_damage_before_the_mark_is_met_by_who_reads_it() -> None:
    there = Log([LARGE_BYTES] * 12)
    start = there.end - 1
    there.spoil(SEGMENT_HEADER_BYTES + 500, 100)
    log, _ = there.opened(start, there.segments.encoded_marks(start))
    assert log.report.damage == ()
    assert there.first not in log.contents()
    assert [*log.contents()][-1] == start


@pytest.mark.parametrize(
    "spoiled", ["its record", "another record's", "another segment's", "no marks"]
)
def test_marks_that_are_not_right_are_not_used(spoiled: str) -> None:
    there = Log([LARGE_BYTES] * 12)
    start = there.end - 1
    marks = there.segments.encoded_marks(start)
    mark = decode_marks(marks).lookup(start)
    assert mark is not None
    if spoiled == "its record":
        there.spoil(mark.at + 20, 1)
    elif spoiled == "another record's":
        moved = Marks()
        moved.add(there.first, SEGMENT_HEADER_BYTES)
        moved.add(start - 5, mark.at)
        marks = moved.encode(start)
    elif spoiled == "another segment's":
        marks = there.segments.encoded_marks(there.first - 1)
    else:
        marks = marks[:-1]
    front, found = there.opened(start, b"")
    log, visited = there.opened(start, marks)
    assert visited == found
    assert log.report.records == front.report.records
    assert log.report.damage == front.report.damage


@pytest.mark.parametrize("plain", [4, 40], ids=["in that segment", "in the next one"])
def test_no_key_is_made_where_one_was_lost_whatever_a_start_need_not_read(plain: int) -> None:
    """Encrypted at first, then not: what is encrypted stands before where the start begins."""
    volume = Volume()
    for use, count in ((encryption(), 3), (encryption(encrypt=False), plain)):
        log = PlainLog(MemoryDisk(volume), CONFIG, encryption=use)
        for _ in range(count):
            log.write(publish(log.committer.end, LARGE_BYTES))
        log.close()
    start = log.committer.end - 1
    marks = log.store.segments.encoded_marks(start)
    MemoryDisk(volume).unlink("keys")
    with pytest.raises(StoreKeyMissing, match="log position 1 is encrypted"):
        PlainLog(
            MemoryDisk(volume), CONFIG, encryption=encryption(),
            start=lambda _id, _cipher: StartPoint(start, range(start, start + 1), marks),
        )  # fmt: skip
    assert "keys" not in MemoryDisk(volume).names()


def test_encrypted_records_are_found_behind_a_mark() -> None:
    there = Log([LARGE_BYTES] * 12, encryption())
    start = there.end - 1
    log, visited = there.opened(start, there.segments.encoded_marks(start))
    assert visited == [start]
    assert log.report.records <= 1 + STRIDE_BYTES // LARGE_BYTES
    assert [*log.contents()] == list(range(1, there.end))
