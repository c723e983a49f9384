"""The segments of a log, their marks, and how many references to their records there are.

If recovery did not read a segment, its marks are made by whoever reads it first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from math import inf

from .compaction import Candidate, DeclineRate
from .header import SEGMENT_HEADER_BYTES
from .series import Series
from .sparse_index import Marks


class Segment:
    """One segment file. Positions are log positions, `at` are bytes in the file."""

    __slots__ = (
        "capacity_bytes", "cut_growth", "decline", "end", "end_at", "first", "growth", "live_bytes", "marks",
        "number", "references", "sealed",
    )  # fmt: skip

    def __init__(self, number: int, first: int, capacity_bytes: int) -> None:
        self.number, self.first, self.capacity_bytes = number, first, capacity_bytes
        self.end = first
        """The log position after its last record."""
        self.end_at = SEGMENT_HEADER_BYTES
        """The byte after its last record."""
        self.sealed = False
        self.growth = 1.0
        """Bytes that carrying it forward takes, per live byte, as far as is known."""
        self.cut_growth = 1.0
        """The same, per live byte that cannot be cut out."""
        self.references = 0
        self.live_bytes = 0
        """Bytes of its records that are needed, as given with the references."""
        self.marks = Marks()
        self.decline = DeclineRate()

    def needed_bytes(self, cut_bytes: int = 0) -> float:
        """Return how much carrying it forward takes if `cut_bytes` of its live bytes are cut out."""
        if not self.live_bytes:
            return 0.0  # The factors may be inf, and inf * 0 is not a number.
        if cut_bytes:
            return self.cut_growth * max(1, self.live_bytes - cut_bytes)
        return self.growth * self.live_bytes

    def take_marks(self, marks: Marks) -> None:
        """Take over marks: what is before the last of them is known, and will not be noted."""
        self.marks = marks
        self.end, self.end_at = marks.last

    def note(self, position: int, at: int, end_at: int) -> None:
        """Note that the record `position`, the last one so far, is at bytes [at, end_at)."""
        if at >= self.marks.next_at:
            self.marks.add(position, at)
        self.end, self.end_at = position + 1, end_at

    def note_series(self, series: Series) -> None:
        """As `note` of each of these records."""
        marks = self.marks
        while (mark := series.from_byte(marks.next_at)) is not None:
            marks.add(*mark)
        self.end, self.end_at = series.position + series.count, series.end_at

    def lookup(self, position: int) -> int:
        """Return a byte where a record begins: the one at `position`, or one before it."""
        mark = self.marks.lookup(position)
        return SEGMENT_HEADER_BYTES if mark is None else mark.at

    def seal(self, end_at: int) -> None:
        self.sealed, self.end_at = True, end_at

    def __repr__(self) -> str:
        state = "sealed" if self.sealed else "open"
        return (
            f"<Segment {self.number} [{self.first}, {self.end}) {state}, {self.references} refer>"
        )


class Segments:
    """All segments that have been used, in order. The last one is being written."""

    def __init__(self) -> None:
        # Replaced, never changed: a reader in another thread sees either the old list or the new one.
        self._all: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def start(self) -> int:
        """The lowest log position that may be there."""
        return self._all[0].first if self._all else 0

    @property
    def last(self) -> Segment | None:
        return self._all[-1] if self._all else None

    def add(self, segment: Segment) -> None:
        assert not self._all or segment.number > self._all[-1].number, "segments come in order"
        self._all = [*self._all, segment]

    def find(self, position: int) -> Segment | None:
        """Return the segment that holds this log position, if there is one."""
        everything = self._all
        index = bisect_right(everything, position, key=lambda segment: segment.first) - 1
        return everything[index] if index >= 0 else None

    def encoded_marks(self, position: int) -> bytes:
        """Return the marks up to this log position of the segment that holds it, as Root has them."""
        segment = self.find(position)
        return b"" if segment is None else segment.marks.encode(position)

    def exclude(self, position: int) -> None:
        """Note that the segment with this log position cannot be carried forward, whatever is cut out of it."""
        self.raise_growth(position, inf)
        self.raise_growth(position, inf, cut=True)

    def raise_growth(self, position: int, times: float, *, cut: bool = False) -> None:
        """Note that carrying forward the segment with this log position takes `times` what was expected; `cut` tells
        whether the expectation was with messages cut out."""
        segment = self.find(position)
        if segment is None or position >= segment.end:  # Freed in the meantime.
            return
        if cut:
            segment.cut_growth *= max(1.0, times)
        else:
            segment.growth *= max(1.0, times)

    def after(self, number: int) -> Segment | None:
        """Return the next segment after this number."""
        everything = self._all
        index = bisect_right(everything, number, key=lambda segment: segment.number)
        return everything[index] if index < len(everything) else None

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """Add `count` references to the record at this log position, or to others of its segment; together they
        need `size_bytes` of it."""
        segment = self.find(position)
        assert segment is not None, "refers to a segment that is there"
        segment.references += count
        segment.live_bytes += size_bytes

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """Remove `count` references, and what they needed."""
        segment = self.find(position)
        assert segment is not None, "referred to a segment that is there"
        assert segment.references >= count, f"{segment} released {count} times"
        assert segment.live_bytes >= size_bytes, f"{segment} released as it was referred to"
        segment.references -= count
        segment.live_bytes -= size_bytes

    def in_same_segment(self, low: int, high: int) -> bool:
        """Whether both log positions are in one segment, and so is everything between them."""
        return self.find(low) is self.find(high)

    def refer_each(self, positions: range, size_bytes: int) -> None:
        """Add one reference to each of these records, as `refer`; a whole range costs as much as one."""
        for position, count in self.by_segment(positions):
            self.refer(position, count, count * size_bytes)

    def release_each(self, positions: range, size_bytes: int) -> None:
        """Remove one reference to each of these records."""
        if len(positions) == 1:  # Messages acked one by one, which is almost always the case.
            self.release(positions[0], 1, size_bytes)
            return
        for position, count in self.by_segment(positions):
            self.release(position, count, count * size_bytes)

    def by_segment(self, positions: range) -> Iterator[tuple[int, int]]:
        """Yield, for each segment that holds some of these log positions, one of them and their number."""
        rising = positions if positions.step > 0 else positions[::-1]
        while len(rising) > 1:
            segment = self.find(rising[0])
            following = None if segment is None else self.after(segment.number)
            if following is None:
                break
            count = len(range(rising[0], min(following.first, rising.stop), rising.step))
            yield rising[0], count
            rising = rising[count:]
        if rising:
            yield rising[0], len(rising)

    def unused(self, keep_from: int, releases: Tally | None = None) -> list[Segment]:
        """Return the sealed segments that end by log position `keep_from`, and have no references except `releases`."""
        released = Counter[int]() if releases is None else releases.references
        return [
            one
            for one in self._all[:-1]
            if one.sealed and one.references == released[one.number] and one.end <= keep_from
        ]

    def candidates(
        self, keep_from: int, now_s: float, releases: Tally | None = None
    ) -> list[Candidate]:
        """Return candidates for compaction. To be called now and then: each is compared with the call before."""
        released = Counter[int]() if releases is None else releases.size_bytes
        return [
            Candidate(
                positions=range(one.first, one.end), size_bytes=one.end_at,
                needed_bytes=one.needed_bytes(released[one.number]),
                movable=one.sealed and one.end <= keep_from,
                dead_in_s=one.decline.dead_in_s(one.needed_bytes(), now_s), cut=released[one.number] > 0,
            )
            for one in self._all
        ]  # fmt: skip

    def remove(self, gone: list[Segment]) -> None:
        self._all = [one for one in self._all if one not in gone]


class Tally:
    """References and live bytes per segment that are about to be released. Or those that could be, if nothing else in
    the same records were needed."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.references: Counter[int] = Counter()
        """By segment number. Until they are released, their segments stay."""
        self.size_bytes: Counter[int] = Counter()

    def count(self, position: int, count: int, size_bytes: int) -> None:
        """Count what `Segments.release` would take away."""
        segment = self._segments.find(position)
        assert segment is not None, "referred to a segment that is there"
        self.references[segment.number] += count
        self.size_bytes[segment.number] += size_bytes

    def count_each(self, positions: range, size_bytes: int) -> None:
        """Count what `Segments.release_each` would take away."""
        for position, count in self._segments.by_segment(positions):
            self.count(position, count, count * size_bytes)
