"""Runs: the messages that one record brought into a lane; and stretches: runs that repeat."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """The messages of one record in one lane: [first, first + count), with bodies of `size_bytes` in total."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    position: int
    size_bytes: int

    def size_of(self, start: int, end: int) -> int:
        """Return the bytes of [start, end) within this run, by average; parts add up exactly to the whole."""
        first, count, _, size = self
        return size * (end - first) // count - size * (start - first) // count

    def fitting(self, start: int, size_bytes: int) -> int:
        """Return how many messages from `start` on take no more than `size_bytes`."""
        first, count, _, size = self
        if not size:
            return first + count - start
        most = size_bytes + size * (start - first) // count
        return min(count, ((most + 1) * count - 1) // size) - (start - first)


class Records(NamedTuple):
    """Records in the log, each with `messages` messages whose bodies take `size_bytes`."""

    positions: range
    messages: int
    size_bytes: int


class Stretch(NamedTuple):
    """A run that occurs `times` times, one after the other, with log positions `step` apart."""

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
        """Return its runs start to end, counted from 0."""
        first, count, position, step, size, _ = self
        return Stretch(first + count * start, count, position + step * start, step, size, end - start)  # fmt: skip

    def overlapping(self, start: int, end: int) -> Stretch:
        """Return those of its runs that overlap [start, end); `times` is 0 if none does."""
        low = max(0, (start - self.first) // self.count)
        high = min(self.times, -((self.first - end) // self.count))
        return self.part(low, max(low, high))

    def joined(self, after: Stretch) -> Stretch | None:
        """Return this stretch and the one after it as one; None if they do not form one."""
        if (self.end, self.count, self.size_bytes) != (after.first, after.count, after.size_bytes):
            return None
        step = after.position - self.position - self.step * (self.times - 1)
        if (self.times > 1 and self.step != step) or (after.times > 1 and after.step != step):
            return None
        return self._replace(step=step, times=self.times + after.times) if step else None
