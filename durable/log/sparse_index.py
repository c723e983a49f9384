"""The sparse index of a segment: a mark for a log position and its byte, one per 64 KiB at most.

From a mark on, a reader follows the lengths in the headers. A mark takes 12 bytes: 50 KB for a segment of
256 MiB, however small its records are. The root of checkpoints has the marks of the segment in which the next
start begins, little endian: `count` log positions of 8 bytes, then as many offsets of 4.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

STRIDE_BYTES = 64 * 1024
MARK_BYTES = 12
MARK_WINDOW_BYTES = 64 * 1024
"""Bytes read to check whether there is a record at a mark: most records are smaller."""


class Mark(NamedTuple):
    """The record at log position `position` begins at byte `at` of its segment."""

    position: int
    at: int


class Marks:
    """The marks of one segment, in order."""

    __slots__ = ("_ats", "_positions", "next_at")

    def __init__(self) -> None:
        self.next_at = 0
        """The next mark is due from this byte on; before it, marks are complete."""
        self._positions = array("Q")
        self._ats = array("I")

    def add(self, position: int, at: int) -> None:
        """Note that the record `position` begins at byte `at`; ignored if the marks have passed that byte. Only one
        caller at a time: the writer of the segment, or, once it is sealed, its readers."""
        if at >= self.next_at:
            self._ats.append(at)  # Before the position, by which a reader in another thread goes.
            self._positions.append(position)
            self.next_at = at + STRIDE_BYTES

    def lookup(self, position: int) -> Mark | None:
        """Return the last mark that is not behind this log position; None if there is none."""
        index = bisect_right(self._positions, position) - 1
        return Mark(self._positions[index], self._ats[index]) if index >= 0 else None

    def read_end(self, position: int, size_bytes: int) -> Mark | None:
        """Return the last mark within `size_bytes` of what `lookup` returns, or else the first mark behind this log
        position, however far it is. None if there is no mark behind it."""
        index = bisect_right(self._positions, position)
        if index == len(self._positions):
            return None
        start = self._ats[index - 1] if index else 0
        index = max(index, bisect_right(self._ats, start + size_bytes, hi=len(self._positions)) - 1)
        return Mark(self._positions[index], self._ats[index])

    @property
    def last(self) -> Mark:
        """The last mark. There must be one."""
        return Mark(self._positions[-1], self._ats[-1])

    def encode(self, position: int) -> bytes:
        """Return the marks that are not behind this log position, as bytes."""
        count = bisect_right(self._positions, position)
        return struct.pack(f"<{count}Q{count}I", *self._positions[:count], *self._ats[:count])


def decode_marks(data: bytes | memoryview) -> Marks:
    """Decode bytes that `encode` has made.

    Raises:
        ValueError: `encode` has not made these bytes.
    """
    count, rest = divmod(len(data), MARK_BYTES)
    if rest:
        raise ValueError(f"{len(data)} bytes of marks are not a multiple of {MARK_BYTES}")
    numbers = struct.unpack(f"<{count}Q{count}I", data)
    marks = Marks()
    for position, at in zip(numbers[:count], numbers[count:], strict=True):
        marks.add(position, at)
    return marks
