"""Consecutive stretches that can be appended to and changed: 48 bytes each.

Bytes (`encode`), little endian: end u64, number of stretches u32, all first sequences u64, then per
stretch count, position, step, size and number of runs as i64. Only for little-endian machines.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct

from .block import Column, Columns, Numbers
from .runs import Run, Stretch

assert sys.byteorder == "little", "arrays are written as they are"

HEAD = Struct("<QI")
FIELDS = 5


def _wide(code: str, column: Column) -> Numbers:
    """Return the column as an array of this type; the same object if it is one already."""
    wide = isinstance(column, array) and column.typecode == code
    return column if wide else array(code, column)  # type: ignore[return-value]


class Rows:
    __slots__ = ("firsts", "rest")

    def __init__(self) -> None:
        self.firsts = array("Q")
        """First sequence of each stretch; its other fields are in `rest`, side by side."""
        self.rest = array("q")

    @classmethod
    def from_columns(cls, columns: Columns) -> Rows:
        made = cls()
        made.extend(columns)
        return made

    def extend(self, columns: Columns) -> None:
        """Append these stretches."""
        firsts, *others = columns
        rest = array("q", bytes(8 * FIELDS * len(firsts)))
        for field, column in enumerate(others):
            rest[field::FIELDS] = _wide("q", column)
        self.firsts.extend(_wide("Q", firsts))
        self.rest.extend(rest)

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def first(self) -> int:
        return self.firsts[0]

    @property
    def end(self) -> int:
        """The sequence after the last message."""
        return self.row(len(self) - 1).end

    def row(self, at: int) -> Stretch:
        return Stretch(self.firsts[at], *self.rest[at * FIELDS : (at + 1) * FIELDS])

    def columns(self, low: int, high: int) -> Columns:
        rest = self.rest[low * FIELDS : high * FIELDS]
        return self.firsts[low:high], *(rest[field::FIELDS] for field in range(FIELDS))

    def find(self, sequence: int) -> Run | None:
        """Return the run that holds this sequence; None if it is in a gap. A stretch must begin there or before."""
        at = bisect_right(self.firsts, sequence) - 1
        first, rest, field = self.firsts[at], self.rest, at * FIELDS
        count = rest[field]
        nth = (sequence - first) // count
        if nth >= rest[field + 4]:
            return None
        position = rest[field + 1] + nth * rest[field + 2]
        return Run(first + nth * count, count, position, rest[field + 3])

    def move(self, first: int, position: int) -> None:
        """Set the log position of the run that begins at `first`, which must be here."""
        at = bisect_right(self.firsts, first) - 1
        stretch = self.row(at)
        nth = (first - stretch.first) // stretch.count
        moved = stretch.part(nth, nth + 1)._replace(position=position, step=0)
        parts = [stretch.part(0, nth), moved, stretch.part(nth + 1, stretch.times)]
        low, high = max(0, at - 1), min(len(self.firsts), at + 2)
        parts = [self.row(index) for index in range(low, at)] + parts
        parts += [self.row(index) for index in range(at + 1, high)]
        self._replace(low, high, parts)

    def _replace(self, low: int, high: int, parts: Sequence[Stretch]) -> None:
        """Replace stretches low to high by `parts`; join those that can be joined."""
        kept: list[Stretch] = []
        for part in parts:
            both = kept[-1].joined(part) if kept and part.times else None
            if both is not None:
                kept[-1] = both
            elif part.times:
                kept.append(part)
        self.firsts[low:high] = array("Q", [part.first for part in kept])
        self.rest[low * FIELDS : high * FIELDS] = array(
            "q", [field for part in kept for field in part[1:]]
        )

    def drop(self, count: int) -> None:
        """Drop `count` stretches at the front."""
        del self.firsts[:count], self.rest[: count * FIELDS]

    def begin_at(self, first: int) -> None:
        """Drop the runs of the first stretch that come before this one."""
        stretch = self.row(0)
        nth = (first - stretch.first) // stretch.count
        self._replace(0, 1, [stretch.part(nth, stretch.times)])

    def encode(self, end: int) -> bytes:
        return HEAD.pack(end, len(self)) + self.firsts.tobytes() + self.rest.tobytes()

    @classmethod
    def decode(cls, data: memoryview) -> tuple[Rows, int]:
        """Return rows and end, not checked. Raises ValueError for a length that no `encode` writes."""
        if len(data) < HEAD.size:
            raise ValueError(f"a truncated index of {len(data)} bytes")
        end, stretches = HEAD.unpack_from(data)
        if len(data) != HEAD.size + stretches * 8 * (1 + FIELDS):
            raise ValueError(f"{len(data)} bytes do not hold {stretches} stretches")
        made = cls()
        made.firsts.frombytes(data[HEAD.size : HEAD.size + 8 * stretches])
        made.rest.frombytes(data[HEAD.size + 8 * stretches :])
        return made, end
