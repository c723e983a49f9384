"""What a segment holds, as far as a plan needs it: marks, lanes, moved records, definitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from durable.log.header import SEGMENT_HEADER_BYTES
from durable.log.record import SEAL_KIND, Kind
from durable.log.scan import Damaged

from .gather import Ints
from .walk import Block


class Mark(NamedTuple):
    """A block of records, which begins with log position `position` at byte `at`."""

    position: int
    at: int
    end_at: int
    time_low_us: int
    time_high_us: int
    """Lowest and highest time of its records that hold messages and were not moved; low > high: there are none."""


class RecordDigest(NamedTuple):
    """A record that is in the log."""

    position: int
    digest: str
    """Digest of its header, and thereby of all records before it, by the chain; it does not reveal the store id."""


@dataclass(slots=True)
class LaneSpan:
    """Lowest offset, end and number of messages of one lane in a segment."""

    first: int
    end: int
    messages: int

    def widen(self, first: int, end: int, messages: int) -> None:
        self.first, self.end = min(self.first, first), max(self.end, end)
        self.messages += messages


class MovedRuns(NamedTuple):
    """Runs that compaction carried forward, or what is left of them: arrays with one item per run."""

    number: Ints
    """Number of the segment that the copy is in."""
    at: Ints
    end_at: Ints
    position: Ints
    origin: Ints
    lane: Ints
    first: Ints
    """Offset of the first message in its lane."""
    messages: Ints
    time_us: Ints
    """When the broker received them."""

    def pick(self, which: Ints) -> MovedRuns:
        return MovedRuns(*(column[which] for column in self))


def concat_runs(all_runs: list[MovedRuns]) -> MovedRuns:
    if not all_runs:
        return MovedRuns(*[np.empty(0, np.int64)] * len(MovedRuns._fields))
    columns = zip(*all_runs, strict=True)
    return MovedRuns(*(np.concatenate(list(column)) for column in columns))


@dataclass(slots=True)
class Contents:
    """Contents of segment `number`, which begins with log position `first`; `add` takes it block by block."""

    number: int
    first: int
    end: int = 0
    end_at: int = SEGMENT_HEADER_BYTES
    last_at: int = 0
    """Where its last record begins; 0 if none was found yet."""
    chain: int = 0
    """The header checksum of that record."""
    synced_end: int = 0
    complete: bool = False
    """Whether nothing will be added."""
    sealed: bool = False
    """Whether it ends with a seal, as segments do when the next one is begun."""
    cut: bool = False
    """Whether the next one was begun, and yet this one ends as if it had held more."""
    marks: list[Mark] = field(default_factory=list)
    lanes: dict[int, LaneSpan] = field(default_factory=dict)
    moved_lanes: dict[int, LaneSpan] = field(default_factory=dict)
    moved: list[MovedRuns] = field(default_factory=list)
    definitions: list[tuple[int, int, int]] = field(default_factory=list)
    """Log positions of records of definitions, and the bytes at which they begin and end."""
    damaged: list[Damaged] = field(default_factory=list)
    successor_first: int = 0
    """Log position with which the segment with the next number begins; 0 if that is unknown, or it is not there."""
    next_first: int = 0
    """Log position with which the next segment that is there begins; 0 if there is none."""

    def __post_init__(self) -> None:
        self.end = self.end or self.first

    @property
    def missing(self) -> bool:
        """Whether it held more than can be found in it, because it was cut, or is damaged at its end."""
        return self.end < self.original_end

    @property
    def original_end(self) -> int:
        """The log position after everything that it ever held; an upper bound if only later segments tell."""
        return max(self.end, self.successor_first or (self.next_first if self.cut else 0))

    @property
    def lossy(self) -> bool:
        return bool(self.damaged) or self.missing

    def add(self, found: Block | Damaged) -> None:
        if isinstance(found, Damaged):
            self.damaged.append(found)
            self.end_at = found.end
            return
        ends = np.append(found.at[1:], found.end_at)
        moved = found.kind == Kind.MOVED
        times = found.time_us[(found.messages > 0) & ~moved]
        low, high = (int(times.min()), int(times.max())) if len(times) else (0, -1)
        mark = Mark(int(found.position[0]), int(found.at[0]), found.end_at, low, high)
        self.marks.append(mark)
        for one in np.flatnonzero(found.kind == Kind.DEFINITIONS):
            self.definitions.append((int(found.position[one]), int(found.at[one]), int(ends[one])))
        is_moved = moved[found.run_record]
        self._add_lanes(self.lanes, found, ~is_moved)
        if is_moved.any():
            self._add_lanes(self.moved_lanes, found, is_moved)
            record = found.run_record[is_moved]
            self.moved.append(MovedRuns(
                np.full(len(record), self.number), found.at[record], ends[record],
                found.position[record], found.origin[record], found.run_lane[is_moved],
                found.run_first[is_moved], found.run_messages[is_moved], found.time_us[record],
            ))  # fmt: skip
        self.end, self.end_at = found.end, found.end_at
        self.last_at, self.chain = int(found.at[-1]), found.chain
        self.synced_end = max(self.synced_end, found.synced_end)
        self.sealed |= bool(found.kind[-1] == SEAL_KIND)
        self.complete |= self.sealed

    def _add_lanes(self, lanes: dict[int, LaneSpan], found: Block, which: Ints) -> None:
        lane, first = found.run_lane[which], found.run_first[which]
        if not len(lane):
            return
        messages = found.run_messages[which]
        order = np.argsort(lane, kind="stable")
        lane, first, messages = lane[order], first[order], messages[order]
        edges = np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))
        lows, ends = (
            np.minimum.reduceat(first, edges),
            np.maximum.reduceat(first + messages, edges),
        )
        for one, low, end, count in zip(
            lane[edges].tolist(), lows.tolist(), ends.tolist(),
            np.add.reduceat(messages, edges).tolist(), strict=True,
        ):  # fmt: skip
            span = lanes.get(one)
            if span is None:
                lanes[one] = LaneSpan(low, end, count)
            else:
                span.widen(low, end, count)
