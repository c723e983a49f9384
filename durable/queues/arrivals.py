"""Runs from many records that are added to one lane at once, as a start reads them: one column per field."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from .block import Columns, Numbers
from .runs import Stretch


class Arrivals(NamedTuple):
    """Runs that follow one another without a gap; at least one."""

    firsts: Numbers
    counts: list[int]
    positions: Numbers
    """Log positions, rising."""
    sizes_bytes: list[int]
    times_us: list[int]
    expires_us: list[int] | None
    """One per run, 0 if it never expires; None if none of them does."""
    is_uniform: bool
    """True if all counts are equal and all sizes are equal. False is no promise that they differ."""

    @property
    def end(self) -> int:
        """The sequence after the last message."""
        return self.firsts[-1] + self.counts[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads."""
        sizes = self.sizes_bytes
        return sizes[0] * len(sizes) if self.is_uniform else sum(sizes)

    def runs(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield first sequence, count, log position, size, time and expiry of each run."""
        never = [0] * len(self.counts)
        *columns, expires_us, _ = self
        return zip(*columns, expires_us or never, strict=True)

    @property
    def stretch(self) -> Stretch | None:
        """All runs as one stretch; None unless they are uniform and evenly spaced in the log."""
        if not self.is_uniform:
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
        """Return the columns of stretches that have one run each."""
        times = len(self.counts)
        # Log positions are below 2^63, so their bytes can be read as signed numbers: no int object is made for any.
        return (
            self.firsts, array("q", self.counts), array("q", self.positions.tobytes()),
            array("q", bytes(8 * times)), array("q", self.sizes_bytes), array("q", [1]) * times,
        )  # fmt: skip
