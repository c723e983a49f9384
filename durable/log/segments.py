"""Which segments there are, where in them log positions stand, and what still refers to them.

Of a segment that recovery did not read, whoever reads it first makes the marks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from math import inf

from .compaction import Candidate, Waning
from .header import SEGMENT_HEADER_BYTES
from .marks import Marks
from .series import Series


class Segment:
    """One file. Positions are log positions, `at` are bytes in the file."""

    __slots__ = (
        "capacity_bytes", "cut_growth", "end", "end_at", "first", "growth", "live_bytes", "marks", "number",
        "references", "sealed", "waning",
    )  # fmt: skip

    def __init__(self, number: int, first: int, capacity_bytes: int) -> None:
        self.number, self.first, self.capacity_bytes = number, first, capacity_bytes
        self.end = first
        """The log position after its last record."""
        self.end_at = SEGMENT_HEADER_BYTES
        """The byte after its last record."""
        self.sealed = False
        self.growth = 1.0
        """What is carried forward of it takes so many times `live_bytes`, as far as is known."""
        self.cut_growth = 1.0
        """The same, of its live bytes but for what can be cut out."""
        self.references = 0
        self.live_bytes = 0
        """What those who refer to its records said that they need."""
        self.marks = Marks()
        self.waning = Waning()

    def needed_bytes(self, cut_bytes: int = 0) -> float:
        """For what is carried forward of it, where so many of its live bytes are cut out."""
        if not self.live_bytes:
            return 0.0  # inf * 0 is none of both.
        if cut_bytes:
            return self.cut_growth * max(1, self.live_bytes - cut_bytes)
        return self.growth * self.live_bytes

    def passed(self, marks: Marks) -> None:
        """What stands before the last of these is known, and will not be noted."""
        self.marks = marks
        self.end, self.end_at = marks.last

    def note(self, position: int, at: int, end_at: int) -> None:
        """The record `position`, the last one so far, stands at bytes [at, end_at)."""
        if at >= self.marks.next_at:
            self.marks.add(position, at)
        self.end, self.end_at = position + 1, end_at

    def note_series(self, series: Series) -> None:
        """As `note` of all of these."""
        marks = self.marks
        while (mark := series.from_byte(marks.next_at)) is not None:
            marks.add(*mark)
        self.end, self.end_at = series.position + series.count, series.end_at

    def near(self, position: int) -> int:
        """A byte where a record begins, `position` itself or one before it."""
        mark = self.marks.near(position)
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
        # Replaced, never changed: a reader in another thread sees the old list or the new one.
        self._all: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def start(self) -> int:
        """The first log position that may be there."""
        return self._all[0].first if self._all else 0

    @property
    def last(self) -> Segment | None:
        return self._all[-1] if self._all else None

    def add(self, segment: Segment) -> None:
        assert not self._all or segment.number > self._all[-1].number, "segments come in order"
        self._all = [*self._all, segment]

    def find(self, position: int) -> Segment | None:
        """The segment that holds this log position, if any does."""
        everything = self._all
        index = bisect_right(everything, position, key=lambda segment: segment.first) - 1
        return everything[index] if index >= 0 else None

    def encoded_marks(self, position: int) -> bytes:
        """Where log positions up to this one stand in its segment, as Root has it."""
        segment = self.find(position)
        return b"" if segment is None else segment.marks.encode(position)

    def leave(self, position: int) -> None:
        """The segment with this log position cannot be carried forward, whatever is cut out of it."""
        self.grows(position, inf)
        self.grows(position, inf, cut=True)

    def grows(self, position: int, times: float, *, cut: bool = False) -> None:
        """What is carried forward of the segment with this log position takes so many times what was expected, where
        some was to be cut out or not."""
        segment = self.find(position)
        if segment is None or position >= segment.end:  # It has been freed meanwhile.
            return
        if cut:
            segment.cut_growth *= max(1.0, times)
        else:
            segment.growth *= max(1.0, times)

    def after(self, number: int) -> Segment | None:
        """The next segment there is."""
        everything = self._all
        index = bisect_right(everything, number, key=lambda segment: segment.number)
        return everything[index] if index < len(everything) else None

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """So many more things need the record at this log position, or others of its segment, so many
        bytes of it together."""
        segment = self.find(position)
        assert segment is not None, "refers to a segment that is there"
        segment.references += count
        segment.live_bytes += size_bytes

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """So many do not any more."""
        segment = self.find(position)
        assert segment is not None, "referred to a segment that is there"
        assert segment.references >= count, f"{segment} released {count} times"
        assert segment.live_bytes >= size_bytes, f"{segment} released as it was referred to"
        segment.references -= count
        segment.live_bytes -= size_bytes

    def are_together(self, low: int, high: int) -> bool:
        """Whether both log positions are of one segment, and with them all between."""
        return self.find(low) is self.find(high)

    def refer_each(self, positions: range, size_bytes: int) -> None:
        """One more thing needs each of these records, as `refer`; a whole range costs as much as one."""
        for position, count in self.by_segment(positions):
            self.refer(position, count, count * size_bytes)

    def release_each(self, positions: range, size_bytes: int) -> None:
        """It does not any more."""
        if len(positions) == 1:  # What is acked one by one: almost all.
            self.release(positions[0], 1, size_bytes)
            return
        for position, count in self.by_segment(positions):
            self.release(position, count, count * size_bytes)

    def by_segment(self, positions: range) -> Iterator[tuple[int, int]]:
        """One of these log positions for each segment they stand in, and how many stand there."""
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

    def unused(self, keep_from: int, besides: Tally | None = None) -> list[Segment]:
        """Sealed, at an end by log position `keep_from`, and referred to by nothing `besides` what is told."""
        told = Counter[int]() if besides is None else besides.references
        return [
            one
            for one in self._all[:-1]
            if one.sealed and one.references == told[one.number] and one.end <= keep_from
        ]

    def candidates(
        self, keep_from: int, now_s: float, besides: Tally | None = None
    ) -> list[Candidate]:
        """For compaction, which is to look now and then: what is left of each is compared with the look before."""
        told = Counter[int]() if besides is None else besides.size_bytes
        return [
            Candidate(
                positions=range(one.first, one.end), size_bytes=one.end_at,
                needed_bytes=one.needed_bytes(told[one.number]),
                movable=one.sealed and one.end <= keep_from,
                gone_s=one.waning.gone_s(one.needed_bytes(), now_s), cut=told[one.number] > 0,
            )
            for one in self._all
        ]  # fmt: skip

    def remove(self, gone: list[Segment]) -> None:
        self._all = [one for one in self._all if one not in gone]


class Tally:
    """What is to be released and is not yet: how often each segment is referred to by that, and how many of its
    live bytes that is. Or what would be, were it not in records of which something is needed."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.references: Counter[int] = Counter()
        """By number. As long as they are not released their segments stay."""
        self.size_bytes: Counter[int] = Counter()

    def count(self, position: int, count: int, size_bytes: int) -> None:
        """As `Segments.release` of these."""
        segment = self._segments.find(position)
        assert segment is not None, "referred to a segment that is there"
        self.references[segment.number] += count
        self.size_bytes[segment.number] += size_bytes

    def count_each(self, positions: range, size_bytes: int) -> None:
        """As `Segments.release_each`."""
        for position, count in self._segments.by_segment(positions):
            self.count(position, count, count * size_bytes)
