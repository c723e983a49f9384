"""Runs, what one record brought into a lane; and stretches, runs that repeat."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """The messages of one record in one lane: [first, first + count), bodies of `size_bytes`."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    position: int
    size_bytes: int

    def size_of(self, start: int, end: int) -> int:
        """Bytes of [start, end) within this run, by average; parts add up to the whole exactly."""
        first, count, _, size = self
        return size * (end - first) // count - size * (start - first) // count

    def fitting(self, start: int, size_bytes: int) -> int:
        """How many messages from `start` on take no more than `size_bytes`."""
        first, count, _, size = self
        if not size:
            return first + count - start
        most = size_bytes + size * (start - first) // count
        return min(count, ((most + 1) * count - 1) // size) - (start - first)


class Records(NamedTuple):
    """Records in the log, each with so many messages and bytes of bodies."""

    positions: range
    messages: int
    size_bytes: int


class Stretch(NamedTuple):
    """`times` runs like the first, their log positions `step` apart."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    position: int
    step: int
    size_bytes: int
    times: int

    @property
    def end(self) -> int:
        return self.first + self.count * self.times

    @property
    def records(self) -> Records:
        step = self.step if self.times > 1 else 1
        positions = range(self.position, self.position + step * self.times, step)
        return Records(positions, self.count, self.size_bytes)

    def part(self, start: int, end: int) -> Stretch:
        """Runs start to end of it, counted from 0."""
        first, count, position, step, size, _ = self
        return Stretch(first + count * start, count, position + step * start, step, size, end - start)  # fmt: skip

    def overlapping(self, start: int, end: int) -> Stretch:
        """Those of its runs that overlap [start, end); 0 times: none does."""
        low = max(0, (start - self.first) // self.count)
        high = min(self.times, -((self.first - end) // self.count))
        return self.part(low, max(low, high))

    def joined(self, after: Stretch) -> Stretch | None:
        """This one and the one after it as one, if they are."""
        if (self.end, self.count, self.size_bytes) != (after.first, after.count, after.size_bytes):
            return None
        step = after.position - self.position - self.step * (self.times - 1)
        if (self.times > 1 and self.step != step) or (after.times > 1 and after.step != step):
            return None
        return self._replace(step=step, times=self.times + after.times) if step else None
