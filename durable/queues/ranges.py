"""Disjoint ranges [start, end) in order, each with a number.

Adjacent ranges with the same number are joined. A range takes 24 bytes, because there may be one per message.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

Span = tuple[int, int]
"""(start, end)."""
Range = tuple[int, int, int]
"""(start, end, number)."""

_NO_BOUNDS, _NO_NUMBERS = array("Q"), array("q")
"""Shared by all instances that never had a range, which are most; never written to."""


class Ranges:
    __slots__ = ("_bounds", "numbers")

    def __init__(self) -> None:
        self._bounds = _NO_BOUNDS  # start, end, start, end, ...: never falls, so bisect works.
        self.numbers = _NO_NUMBERS
        """Empty if there are no ranges; read directly in hot code, where a call of `__len__` would be noticeable."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._bounds[::2], self._bounds[1::2], self.numbers, strict=True)

    def first(self) -> tuple[int, int]:
        """Return the lowest range. There must be one."""
        return self._bounds[0], self._bounds[1]

    def lookup(self, at: int, end: int) -> tuple[int, int]:
        """Return the number at `at`, 0 if it is in no range, and up to where it stays the same, at most `end`."""
        bounds = self._bounds
        index = bisect_right(bounds, at)
        number = self.numbers[index >> 1] if index & 1 else 0
        return number, min(end, bounds[index]) if index < len(bounds) else end

    def pieces(self, start: int, end: int) -> Iterator[Range]:
        """Yield all of [start, end), split where the number changes; the number is 0 outside of ranges."""
        while start < end:
            number, edge = self.lookup(start, end)
            yield start, edge, number
            start = edge

    def cut(self, start: int, end: int) -> list[Range]:
        """Remove [start, end), and return the ranges that were in it."""
        bounds, numbers = self._bounds, self.numbers
        if start >= end or not bounds or start >= bounds[-1] or end <= bounds[0]:
            return []
        low, high = bisect_right(bounds, start) >> 1, (bisect_left(bounds, end) + 1) >> 1
        if low >= high:
            return []
        removed = [
            (max(bounds[2 * at], start), min(bounds[2 * at + 1], end), numbers[at])
            for at in range(low, high)
        ]
        left, right = bounds[2 * low], bounds[2 * high - 1]
        rest_bounds, rest_numbers = array("Q"), array("q")
        if left < start:
            rest_bounds.extend((left, start))
            rest_numbers.append(removed[0][2])
        if right > end:
            rest_bounds.extend((end, right))
            rest_numbers.append(removed[-1][2])
        bounds[2 * low : 2 * high], numbers[low:high] = rest_bounds, rest_numbers
        return removed

    def cut_ending_at(self, end: int) -> int | None:
        """Remove the last range if it ends at `end`. Return its start, or None if it does not."""
        bounds = self._bounds
        if not bounds or bounds[-1] != end:
            return None
        start = bounds[-2]
        del bounds[-2:], self.numbers[-1]
        return start

    def put(self, start: int, end: int, number: int = 1) -> None:
        """Add [start, end); no range may overlap it."""
        self._unshare()
        bounds, numbers = self._bounds, self.numbers
        index = bisect_right(bounds, start)
        at = index >> 1
        assert not index & 1, f"{start} is in a range"
        assert at == len(numbers) or end <= bounds[index], f"{end} is in a range"
        if at and bounds[index - 1] == start and numbers[at - 1] == number:
            at, index = at - 1, index - 2
            start = bounds[index]
            del bounds[index : index + 2], numbers[at]
        if at < len(numbers) and bounds[index] == end and numbers[at] == number:
            end = bounds[index + 1]
            del bounds[index : index + 2], numbers[at]
        bounds[index:index] = array("Q", (start, end))
        numbers.insert(at, number)

    def increment(self, spans: Sequence[Span]) -> None:
        """Add 1 to the number of everything in these spans; outside of ranges it was 0."""
        if len(spans) > 1:
            lowest = min(start for start, _ in spans)
            # The last range that begins before the spans: it may be joined with what follows.
            at = max(0, ((bisect_left(self._bounds, lowest) + 1) >> 1) - 1)
            if len(spans) * len(spans) > len(self.numbers) - at:
                self._increment_many(spans, at)
                return
        for start, end in spans:
            if start < end and self.lookup(start, end) == (0, end):  # The common case.
                self.put(start, end)
                continue
            pieces = list(self.pieces(start, end))
            self.cut(start, end)
            for low, high, number in pieces:
                self.put(low, high, number + 1)

    def _increment_many(self, spans: Sequence[Span], low: int) -> None:
        """Rebuild all ranges from range `low` on: an insertion in the middle would move all that is behind it."""
        steps = defaultdict[int, int](int)  # By how much the number rises at each bound.
        bounds, numbers = self._bounds[2 * low :], self.numbers[low:]
        for start, end, number in zip(bounds[::2], bounds[1::2], numbers, strict=True):
            steps[start] += number
            steps[end] -= number
        for start, end in spans:
            steps[start] += 1
            steps[end] -= 1
        self._unshare()
        del self._bounds[2 * low :], self.numbers[low:]
        begin = number = 0
        for at in sorted(steps):
            if step := steps[at]:
                if number:
                    self._bounds.extend((begin, at))
                    self.numbers.append(number)
                begin, number = at, number + step

    def _unshare(self) -> None:
        """Replace the shared empty arrays before something is put in."""
        if self.numbers is _NO_NUMBERS:
            self._bounds, self.numbers = array("Q"), array("q")

    def clear(self) -> None:
        del self._bounds[:], self.numbers[:]

    def encode(self) -> bytes:
        """Little endian: u32 count; starts and ends u64; numbers i64."""
        head = len(self.numbers).to_bytes(4, "little")
        return head + self._bounds.tobytes() + self.numbers.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Ranges:
        """Raises ValueError for bytes that no `encode` has written."""
        count = int.from_bytes(data[:4], "little")
        if len(data) != 4 + 24 * count:
            raise ValueError(f"{len(data)} bytes do not hold {count} ranges")
        made = cls()
        if not count:
            return made
        made._unshare()
        made._bounds.frombytes(data[4 : 4 + 16 * count])
        made.numbers.frombytes(data[4 + 16 * count :])
        bounds = made._bounds
        for index in range(1, len(bounds)):
            if bounds[index - 1] >= bounds[index] + (index % 2 == 0):
                raise ValueError(
                    f"range {index >> 1} overlaps the one before, or ends before it begins"
                )
        return made
