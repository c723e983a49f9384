"""What many records bring into one lane at once, as a start reads them: a column for each of their numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from .block import Columns, Numbers
from .runs import Stretch


class Arrivals(NamedTuple):
    """Runs that follow one another without a gap, one at least."""

    firsts: Numbers
    counts: list[int]
    positions: Numbers
    """Rising."""
    sizes_bytes: list[int]
    times_us: list[int]
    expires_us: list[int] | None
    """0: never; None: none of them ever does."""
    alike: bool
    """Counts and sizes are all the same; else some may be, too."""

    @property
    def end(self) -> int:
        """The sequence after the last message."""
        return self.firsts[-1] + self.counts[-1]

    @property
    def size_bytes(self) -> int:
        """Of all payloads."""
        sizes = self.sizes_bytes
        return sizes[0] * len(sizes) if self.alike else sum(sizes)

    def each(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """First sequence, count, log position, size, time and expiry of each run."""
        never = [0] * len(self.counts)
        *columns, expires_us, _ = self
        return zip(*columns, expires_us or never, strict=True)

    @property
    def stretch(self) -> Stretch | None:
        """All of them, if they are alike and evenly apart in the log."""
        if not self.alike:
            return None
        positions, times = self.positions, len(self.positions)
        low, high = positions[0], positions[-1]
        step = positions[1] - low if times > 1 else 1
        if high - low != step * (times - 1):
            return None
        if step > 1 and positions != array("Q", range(low, high + 1, step)):
            return None
        return Stretch(self.firsts[0], self.counts[0], low, step, self.sizes_bytes[0], times)

    def columns(self) -> Columns:
        """Of stretches of one run each."""
        times = len(self.counts)
        # Log positions are below 2^63: the same bytes with a sign, and none of them becomes an object.
        return (
            self.firsts, array("q", self.counts), array("q", self.positions.tobytes()),
            array("q", bytes(8 * times)), array("q", self.sizes_bytes), array("q", [1]) * times,
        )  # fmt: skip
