"""Where the messages of a lane stand in the log: runs, and runs that repeat as one stretch.

A run is what one record brought into this lane. Runs that follow each other with the same count, the
same size and the same step between their log positions are one stretch of 48 bytes, so ten million
messages published one by one take as much as one.

    stretch: first sequence, count, log position, step, size, how many runs

Bytes (`encode`), little endian: end u64, number of stretches u32, all first sequences u64, then per
stretch count, position, step, size and how many as i64. This build is for little-endian machines.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import add, le, mul
from struct import Struct
from typing import NamedTuple

assert sys.byteorder == "little", "arrays are written as they are"

_HEAD = Struct("<QI")
_FIELDS = 5
_STALE_MIN = 8
_AT_ONCE = 32
"""Stretches whose fields are taken out together: one by one they would take several times as long."""
_LIMIT = 1 << 63
_NO_FIRSTS, _NO_REST = array("Q"), array("q")
"""Of all lanes in which nothing has ever been: nothing is put in here."""


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

    def part(self, start: int, end: int) -> Stretch:
        """Runs start to end of it, counted from 0."""
        first, count, position, step, size, _ = self
        return Stretch(first + count * start, count, position + step * start, step, size, end - start)  # fmt: skip

    def joined(self, after: Stretch) -> Stretch | None:
        """This one and the one after it as one, if they are."""
        if (self.end, self.count, self.size_bytes) != (after.first, after.count, after.size_bytes):
            return None
        step = after.position - self.position - self.step * (self.times - 1)
        if (self.times > 1 and self.step != step) or (after.times > 1 and after.step != step):
            return None
        return self._replace(step=step, times=self.times + after.times) if step else None


class Index:
    __slots__ = ("_expected", "_firsts", "_gone", "_last", "_rest", "_runs", "end")

    def __init__(self) -> None:
        self.end = 0
        """The sequence after the last message."""
        self._runs = 0
        self._firsts, self._rest = _NO_FIRSTS, _NO_REST
        self._gone = 0  # So many stretches at the front are dropped, and stay until that is cheap.
        self._expected = -1  # The log position that would go on with the last stretch, and its
        self._last = (0, 0)  # count and size.

    def __len__(self) -> int:
        return self._runs

    @property
    def start(self) -> int:
        """The first sequence of the first run; `end` if there is none."""
        return self._firsts[self._gone] if self._runs else self.end

    def append(self, first: int, count: int, position: int, size_bytes: int) -> None:
        """The next run. `first` is `end`, or more where damaged records have left a gap."""
        if (
            position == self._expected
            and first == self.end
            and (count, size_bytes) == self._last
        ):  # fmt: skip
            self._rest[-1] += 1
            self._expected += self._rest[-3]
        else:
            assert first >= self.end, f"runs come in order: {first} before {self.end}"
            assert count > 0 <= size_bytes, f"impossible run of {count}, {size_bytes} bytes"
            new = Stretch(first, count, position, 0, size_bytes, 1)
            if self._runs and first == self.end and (count, size_bytes) == self._last:
                both = self._stretch(len(self._firsts) - 1).joined(new)
            else:
                both = None
            if both is not None:
                self._rest[-_FIELDS:] = array("q", both[1:])
                self._expected = position + both.step
            else:
                if self._firsts is _NO_FIRSTS:
                    self._firsts, self._rest = array("Q"), array("q")
                self._firsts.append(first)
                self._rest.extend(new[1:])
                self._expected, self._last = -1, (count, size_bytes)
        self.end = first + count
        self._runs += 1

    def find(self, sequence: int) -> Run | None:
        """The run that holds it. None: dropped, in a gap, or not there yet."""
        at = bisect_right(self._firsts, sequence) - 1
        if at < self._gone:
            return None
        first, rest, field = self._firsts[at], self._rest, at * _FIELDS
        count = rest[field]
        which = (sequence - first) // count
        if which >= rest[field + 4]:
            return None
        position = rest[field + 1] + which * rest[field + 2]
        return Run(first + which * count, count, position, rest[field + 3])

    def stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """Those runs that overlap [start, end), as stretches, in order."""
        at = max(self._gone, bisect_right(self._firsts, start) - 1)
        stop = bisect_left(self._firsts, end)
        yield from self._overlapping(at, min(at + 1, stop), start, end)
        for fields in self._fields(at + 1, stop - 1):
            yield from map(Stretch, *fields)
        yield from self._overlapping(max(at + 1, stop - 1), stop, start, end)

    def _overlapping(self, at: int, stop: int, start: int, end: int) -> Iterator[Stretch]:
        """Of stretches [at, stop) the runs that overlap [start, end)."""
        for index in range(at, stop):
            stretch = self._stretch(index)
            low = max(0, (start - stretch.first) // stretch.count)
            high = min(stretch.times, -((stretch.first - end) // stretch.count))
            if low < high:
                yield stretch.part(low, high)

    def _fields(self, at: int, stop: int) -> Iterator[list[array[int]]]:
        """Of stretches [at, stop) those that `Stretch` has, some at once: an index may be made of millions."""
        for low in range(at, stop, _AT_ONCE):
            high = min(low + _AT_ONCE, stop)
            rest = self._rest[low * _FIELDS : high * _FIELDS]
            yield [self._firsts[low:high], *(rest[field::_FIELDS] for field in range(_FIELDS))]

    def runs(self, start: int, end: int) -> Iterator[Run]:
        """Those that overlap [start, end), in order."""
        for first, count, position, step, size, times in self.stretches(start, end):
            for which in range(times):
                yield Run(first + which * count, count, position + which * step, size)

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges in [start, end) that no run covers."""
        at = max(self._gone, bisect_right(self._firsts, start) - 1)
        for firsts, counts, *_, times in self._fields(at, bisect_left(self._firsts, end)):
            for first, count, how_many in zip(firsts, counts, times, strict=True):
                if first > start:
                    yield start, first
                start = max(start, first + count * how_many)
        if start < end:
            yield start, end

    def size_bytes(self, start: int, end: int) -> int:
        """Bytes of the messages in [start, end)."""
        run = self.find(start)
        if run is not None and end <= run.first + run.count:
            return run.size_of(start, end)
        size = sum(one.size_bytes * one.times for one in self.stretches(start, end))
        last = self.find(end - 1)
        if run is not None:
            size -= run.size_of(run.first, start)
        if last is not None:
            size -= last.size_of(end, last.first + last.count)
        return size

    def drop_before(self, sequence: int) -> None:
        """Forget runs that lie wholly before."""
        firsts, rest = self._firsts, self._rest
        while self._runs:
            field = self._gone * _FIELDS
            first, count, times = firsts[self._gone], rest[field], rest[field + 4]
            drop = min(times, (sequence - first) // count)
            if drop <= 0:
                break
            self._runs -= drop
            if drop < times:
                firsts[self._gone] += drop * count
                rest[field + 1] += drop * rest[field + 2]
                rest[field + 4] -= drop
                break
            self._gone += 1
        if not self._runs:
            self._gone = len(firsts)
            self._expected, self._last = -1, (0, 0)
        if self._gone > _STALE_MIN and 2 * self._gone > len(firsts):
            self._tidy()

    def _tidy(self) -> None:
        del self._firsts[: self._gone], self._rest[: self._gone * _FIELDS]
        self._gone = 0

    def move(self, first: int, position: int) -> bool:
        """The run that begins at `first` now stands at another log position; False: it is dropped.

        Log positions need not rise with sequences any more then.
        """
        at = bisect_right(self._firsts, first) - 1
        run = self.find(first)
        if run is None:
            return False
        assert run.first == first, f"{run} begins elsewhere than {first}"
        stretch = self._stretch(at)
        which = (first - stretch.first) // stretch.count
        moved = stretch.part(which, which + 1)._replace(position=position, step=0)
        parts = [stretch.part(0, which), moved, stretch.part(which + 1, stretch.times)]
        low, high = max(self._gone, at - 1), min(len(self._firsts), at + 2)
        parts = [self._stretch(index) for index in range(low, at)] + parts
        parts += [self._stretch(index) for index in range(at + 1, high)]
        self._replace(low, high, parts)
        return True

    def _replace(self, low: int, high: int, parts: list[Stretch]) -> None:
        """Put `parts` in the place of stretches low to high, those joined that can be."""
        kept: list[Stretch] = []
        for part in parts:
            both = kept[-1].joined(part) if kept and part.times else None
            if both is not None:
                kept[-1] = both
            elif part.times:
                kept.append(part)
        self._firsts[low:high] = array("Q", [part.first for part in kept])
        self._rest[low * _FIELDS : high * _FIELDS] = array(
            "q", [field for part in kept for field in part[1:]]
        )
        self._note_last()

    def _note_last(self) -> None:
        if not self._runs:
            return
        last = self._stretch(len(self._firsts) - 1)
        self._last = last.count, last.size_bytes
        self._expected = last.position + last.step * last.times if last.step else -1

    def _stretch(self, at: int) -> Stretch:
        return Stretch(self._firsts[at], *self._rest[at * _FIELDS : (at + 1) * _FIELDS])

    def encode(self) -> bytes:
        self._tidy()
        head = _HEAD.pack(self.end, len(self._firsts))
        return head + self._firsts.tobytes() + self._rest.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Index:
        """Raises ValueError for bytes that no `encode` has written."""
        if len(data) < _HEAD.size:
            raise ValueError(f"an index in {len(data)} bytes")
        end, stretches = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + stretches * 8 * (1 + _FIELDS):
            raise ValueError(f"{len(data)} bytes for {stretches} stretches")
        made = cls()
        made._firsts, made._rest = array("Q"), array("q")
        made._firsts.frombytes(data[_HEAD.size : _HEAD.size + 8 * stretches])
        made._rest.frombytes(data[_HEAD.size + 8 * stretches :])
        made.end = end
        at = 0
        for firsts, counts, positions, steps, sizes, times in made._fields(0, stretches):
            ends = list(map(add, firsts, map(mul, counts, times)))
            lasts = [
                position + step * (how_many - 1)
                for position, step, how_many in zip(positions, steps, times, strict=True)
            ]
            if (
                min(counts) < 1 or min(times) < 1 or min(sizes) < 0 or min(positions) < 0
                or min(lasts) < 0 or max(lasts) >= _LIMIT
                or not all(map(le, [at, *ends], firsts))
                or any(how_many > 1 and not step for how_many, step in zip(times, steps, strict=True))
            ):  # fmt: skip
                raise ValueError(f"impossible stretches between {firsts[0]} and {ends[-1]}")
            at = ends[-1]
            made._runs += sum(times)
        if end >= _LIMIT or (stretches and at != end):
            raise ValueError(f"ends at {at}, says {end}")
        made._note_last()
        return made

    def memory_bytes(self) -> int:
        return sys.getsizeof(self) + sys.getsizeof(self._firsts) + sys.getsizeof(self._rest)
