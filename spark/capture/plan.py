"""Which task reads which bytes of which segments.

    segments  | ... | ... | ... | ... |        cut at blocks, sorted by the log positions that the
    moved                    | ·  ·· |         records had first
    splits    |-----------|-----------|------|  about `split_bytes` each: a task costs 60 ms, so many
                                               small ranges are packed into one

With `ordering=queue`, every split reads all the ranges and takes different lanes from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from durable.log.header import SEGMENT_HEADER_BYTES

from .contents import Contents, LaneSpan, Mark, MovedRuns
from .gather import Ints
from .stored import StoredLog

MERGE_GAP_BYTES = 1 << 20
"""Moved records closer together than this are read as one range."""
GROUPS_MAX = 8
"""Most splits of ordered reading unless more are asked for, because each of them reads everything."""
SPLIT_BYTES_MIN = 16 << 20
"""The fixed cost of a task, in bytes: splits are not made smaller than this to keep more cores busy."""

NO_LIMIT = 1 << 62


class Offsets(NamedTuple):
    """A lane to be read: its messages [`low`, `high`), and its queue and partition."""

    queue: str
    partition: int
    low: int
    high: int


LaneTable = Mapping[int, Offsets]


class Times(NamedTuple):
    """Times in us since 1970: [`low`, `high`)."""

    low: int = 0
    high: int = NO_LIMIT

    def narrowed(self, other: Times) -> Times:
        """Return the times that are in both."""
        return Times(max(self.low, other.low), min(self.high, other.high))

    def overlaps(self, low: int, high: int) -> bool:
        """Return whether any time from `low` to `high`, inclusive, may be among them."""
        return low <= high and low < self.high and high >= self.low


@dataclass(frozen=True, slots=True)
class Carried:
    """Runs to be taken from moved records, sorted by log position and lane."""

    position: Ints
    lane: Ints
    origin: Ints


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Records in bytes [`at`, `end_at`) of a segment that have log positions [`start`, `end`)."""

    path: str
    seed: int
    at: int
    end_at: int
    start: int
    end: int
    first_origin: int
    """The log position that its first record had first; ranges are read in this order."""
    carried: Carried | None
    """None: all records except moved ones."""
    lanes: frozenset[int]
    """The wanted lanes that may have messages in it."""
    missing: bool = False
    """Whether none of its records is there, because the segment was cut, or is damaged at its end."""
    records_end: int = NO_LIMIT
    """The log position after its last record, if it is not of moved records."""
    reports: bool = True
    """Whether damage in it counts here, and not in another task that reads the same range."""

    @property
    def size_bytes(self) -> int:
        return self.end_at - self.at

    @property
    def floor(self) -> int:
        """The lowest log position that may be in it. A damaged record in front of the first valid one has a lower one:
        no range that ends before it meets it, so it counts at the valid one, not at its own."""
        return 0 if self.carried else self.first_origin


class Selected(NamedTuple):
    """What is to be read of a log: log positions [`start`, `end`), by origin."""

    log: StoredLog
    lanes: LaneTable
    times: Times
    start: int
    end: int


class Work(NamedTuple):
    """What one task reads: ranges, one after the other, and the lanes to be taken from them."""

    ranges: tuple[ByteRange, ...]
    lanes: LaneTable


def pack(
    selected: Selected, *, split_bytes: int, splits_min: int, ordered: bool, cores: int = 1
) -> list[Work]:
    """Share out everything that has to be read, so that none of `cores` is idle if there is enough."""
    all_ranges = ranges(selected, NO_LIMIT)
    total = sum(one.size_bytes for one in all_ranges)
    if not ordered:
        split_bytes = min(split_bytes, max(SPLIT_BYTES_MIN, -(-total // cores)))
    split_bytes = max(1, min(split_bytes, -(-total // splits_min)))
    if ordered:
        return _pack_by_lane(
            all_ranges, selected.lanes, max(splits_min, min(total // split_bytes, GROUPS_MAX))
        )
    works: list[list[ByteRange]] = []
    size = 0
    for one in ranges(selected, split_bytes):
        if not works or size + one.size_bytes > split_bytes:
            works.append([])
            size = 0
        works[-1].append(one)
        size += one.size_bytes
    return [work_of(work, selected.lanes) for work in works]


def work_of(ranges: Sequence[ByteRange], table: LaneTable) -> Work:
    """Return work with all of these ranges, and those lanes of `table` that have something in them."""
    lanes = frozenset[int]().union(*(one.lanes for one in ranges))
    return Work(tuple(ranges), {lane: table[lane] for lane in lanes})


def work_of_lanes(all_ranges: Sequence[ByteRange], table: LaneTable, *, first: bool) -> Work:
    """Return work with all lanes of `table`, and the ranges that have something of these. `first`: of all tasks that
    share `all_ranges`, this one also takes the ranges without a known lane."""
    lanes = table.keys()
    # Damage counts in exactly one task: that of the lowest lane, or the first if it belongs to no known lane.
    wanted = [
        replace(one, reports=first if not one.lanes else min(one.lanes) in lanes)
        for one in all_ranges
        if not lanes.isdisjoint(one.lanes) or (first and not one.lanes)
    ]
    return Work(tuple(wanted), table)


def _pack_by_lane(all_ranges: list[ByteRange], table: LaneTable, groups_max: int) -> list[Work]:
    """Give each task whole lanes, so that it reads a lane from beginning to end."""
    sizes = Counter[int]()
    for one in all_ranges:
        for lane in one.lanes:
            sizes[lane] += one.size_bytes
    groups: list[set[int]] = [set() for _ in range(max(1, min(len(sizes), groups_max)))]
    loads = [0] * len(groups)
    for lane, size in sizes.most_common():
        least = loads.index(min(loads))
        groups[least].add(lane)
        loads[least] += size
    works = [
        work_of_lanes(all_ranges, {lane: table[lane] for lane in group}, first=group is groups[0])
        for group in groups
    ]
    return [one for one in works if one.ranges]


def ranges(selected: Selected, split_bytes: int) -> list[ByteRange]:
    """Return all that has to be read, in order, in pieces of about `split_bytes`."""
    found = [*segment_ranges(selected, split_bytes), *carried_ranges(selected, split_bytes)]
    return sorted(found, key=lambda one: one.first_origin)


def segment_ranges(selected: Selected, split_bytes: int) -> list[ByteRange]:
    """Return the ranges of segments, without what compaction carried."""
    return [
        one
        for contents in selected.log.contents
        for one in _ranges_in_segment(selected, contents, split_bytes)
    ]


def _ranges_in_segment(
    selected: Selected, contents: Contents, split_bytes: int
) -> Iterator[ByteRange]:
    log, start, end = selected.log, selected.start, selected.end
    if contents.original_end <= start or contents.first >= end:
        return
    lanes = frozenset(_wanted_lanes(contents.lanes, selected.lanes))
    if not (lanes or contents.lossy):
        return  # A damaged segment is read all the same: any lane may have had messages in it.
    whole = ByteRange(
        log.segment_path(contents.number), log.seed, SEGMENT_HEADER_BYTES, contents.end_at, start, end,
        contents.first, None, lanes, records_end=contents.end,
    )  # fmt: skip
    pieces = [*_pieces(selected, contents, whole, split_bytes)]
    yield from pieces
    records_end_at = contents.marks[-1].end_at if contents.marks else whole.at
    if pieces and pieces[-1].end_at > records_end_at:
        return  # The segment ends with damage, which is reported by that piece.
    if contents.missing and contents.end < end:
        yield replace(
            whole, at=records_end_at, start=max(start, contents.end),
            end=min(end, contents.original_end), first_origin=contents.end, lanes=frozenset(),
            missing=True,
        )  # fmt: skip


def _pieces(
    selected: Selected, contents: Contents, whole: ByteRange, split_bytes: int
) -> Iterator[ByteRange]:
    """Yield the wanted blocks of a segment, in pieces, with the damage before them, and after the last one."""
    if contents.damaged and not contents.marks:
        yield whole
    piece: ByteRange | None = None
    end_at = whole.at
    for mark, after in _marks(contents):
        # A seal alone in its block has no log position: what is damaged before it counts there.
        wanted = min(mark.position, after - 1) < whole.end and after > whole.start
        if not contents.damaged:
            wanted &= selected.times.overlaps(mark.time_low_us, mark.time_high_us)
        if piece is not None and (not wanted or mark.end_at - piece.at > split_bytes):
            yield piece
            piece = None
        if wanted and piece is None:
            # It begins where the last block ends: what is between is damaged.
            piece = replace(whole, at=end_at, first_origin=mark.position)
        if piece is not None:
            piece = replace(piece, end_at=mark.end_at, records_end=after)
        end_at = mark.end_at
    if piece is not None:
        yield replace(piece, end_at=contents.end_at)


def _marks(contents: Contents) -> Iterator[tuple[Mark, int]]:
    """Yield each mark with the log position after its block."""
    following = [one.position for one in contents.marks[1:]]
    return zip(contents.marks, [*following, contents.end], strict=False)  # There may be no mark.


def _wanted_lanes(spans: Mapping[int, LaneSpan], lanes: LaneTable) -> Iterator[int]:
    for lane, span in spans.items():
        offsets = lanes.get(lane)
        if offsets is not None and span.first < offsets.high and span.end > offsets.low:
            yield lane


def carried_ranges(
    selected: Selected, split_bytes: int, cuts: Sequence[int] = ()
) -> Iterator[ByteRange]:
    """Yield ranges of what compaction carried; none has log positions on both sides of one of `cuts`."""
    runs = selected.log.carried()
    which = (runs.origin >= selected.start) & (runs.origin < selected.end)
    which &= np.isin(runs.lane, np.fromiter(selected.lanes, np.int64, len(selected.lanes)))
    runs = runs.pick(np.flatnonzero(which))
    if not len(runs.at):
        return
    # A range must not span a segment that still exists: what was freed between two of these is read between them.
    edges = sorted([*(one.first for one in selected.log.contents), *cuts])
    region = np.searchsorted(edges, runs.origin, "right")
    near = (
        (region[1:] == region[:-1])
        & (runs.number[1:] == runs.number[:-1])
        & (runs.at[1:] >= runs.at[:-1])
        & (runs.at[1:] - runs.end_at[:-1] < MERGE_GAP_BYTES)
    )
    begins = np.append(0, np.flatnonzero(~near) + 1)
    for begin, stop in zip(begins, np.append(begins[1:], len(runs.at)), strict=True):
        for group in _split_runs(runs.pick(np.arange(begin, stop)), split_bytes):
            yield _carried_range(selected, group)


def _split_runs(runs: MovedRuns, split_bytes: int) -> Iterator[MovedRuns]:
    piece = (runs.at - runs.at[0]) // split_bytes
    edges = np.append(0, np.flatnonzero(piece[1:] != piece[:-1]) + 1)
    for begin, stop in zip(edges, np.append(edges[1:], len(piece)), strict=True):
        yield runs.pick(np.arange(begin, stop))


def _carried_range(selected: Selected, runs: MovedRuns) -> ByteRange:
    log = selected.log
    order = np.lexsort((runs.lane, runs.position))
    carried = Carried(runs.position[order], runs.lane[order], runs.origin[order])
    return ByteRange(
        log.segment_path(int(runs.number[0])), log.seed, int(runs.at[0]),
        int(runs.end_at.max()), 0, NO_LIMIT, int(runs.origin[0]), carried,
        frozenset(runs.lane.tolist()),
    )  # fmt: skip
