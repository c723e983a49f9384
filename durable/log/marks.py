"""Where in a segment its log positions stand: a mark every 64 KiB at most.

A reader goes on from a mark by the lengths in the headers. 12 bytes a mark: 50 KB for a segment of
256 MiB, however small its records. The root of checkpoints has those of the segment that the next start
begins in, little endian: `count` log positions of 8 bytes, then as many offsets of 4.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

STRIDE_BYTES = 64 * 1024
MARK_BYTES = 12
MARK_WINDOW_BYTES = 64 * 1024
"""Read to see whether a record stands at a mark: most are smaller."""


class Mark(NamedTuple):
    """The record at log position `position` begins at byte `at` of its segment."""

    position: int
    at: int


class Marks:
    """Of one segment, in order."""

    __slots__ = ("_ats", "_positions", "next_at")

    def __init__(self) -> None:
        self.next_at = 0
        """The next mark is due from this byte on; before it there are all."""
        self._positions = array("Q")
        self._ats = array("I")

    def add(self, position: int, at: int) -> None:
        """The record `position` begins at byte `at`, unless it stands among marks. Called by one at a
        time: whoever writes the segment, readers once it is sealed."""
        if at >= self.next_at:
            self._ats.append(at)  # First this: a reader in another thread looks at positions.
            self._positions.append(position)
            self.next_at = at + STRIDE_BYTES

    def near(self, position: int) -> Mark | None:
        """The last one that is not behind this log position."""
        index = bisect_right(self._positions, position) - 1
        return Mark(self._positions[index], self._ats[index]) if index >= 0 else None

    def stop(self, position: int, size_bytes: int) -> Mark | None:
        """The last one within so many bytes of `near`, or else the first one behind this log position,
        however far. None: there is none behind it."""
        index = bisect_right(self._positions, position)
        if index == len(self._positions):
            return None
        start = self._ats[index - 1] if index else 0
        index = max(index, bisect_right(self._ats, start + size_bytes, hi=len(self._positions)) - 1)
        return Mark(self._positions[index], self._ats[index])

    @property
    def last(self) -> Mark:
        """Of at least one."""
        return Mark(self._positions[-1], self._ats[-1])

    def encode(self, position: int) -> bytes:
        """Those that are not behind this log position."""
        count = bisect_right(self._positions, position)
        return struct.pack(f"<{count}Q{count}I", *self._positions[:count], *self._ats[:count])


def decode_marks(data: bytes | memoryview) -> Marks:
    """What `encode` has made.

    Raises:
        ValueError: it has not made this.
    """
    count, rest = divmod(len(data), MARK_BYTES)
    if rest:
        raise ValueError(f"{len(data)} bytes of marks are no multiple of {MARK_BYTES}")
    numbers = struct.unpack(f"<{count}Q{count}I", data)
    marks = Marks()
    for position, at in zip(numbers[:count], numbers[count:], strict=True):
        marks.add(position, at)
    return marks
