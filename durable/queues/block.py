"""An immutable block of some thousand consecutive stretches, stored as one column per field.

A column takes as few bytes as its numbers need: none if they rise evenly or are all the same. So a message
that was stored alone takes four to eight bytes, even if the sizes of its neighbours differ. Totals that are
needed for many stretches at once, such as bytes and the range of log positions, are kept for the whole block.

Bytes (`encode`), little endian: number of stretches u32; six bytes, one for each column (first sequence,
count, log position, step, size, number of runs): "=" if its numbers rise evenly, else their width: B, H, I
or Q for 1, 2, 4 or 8 bytes, q for 8 bytes with a sign; per even column its first number and its increment,
both i64; then the numbers of the other columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, repeat
from operator import add, le, lt, mul, or_, sub
from struct import Struct
from typing import TYPE_CHECKING

from .runs import Records, Run, Stretch

if TYPE_CHECKING:
    Numbers = array[int]
else:
    Numbers = array  # Python 3.11's array cannot be subscripted at run time.
Column = Numbers | range
Columns = tuple[Column, ...]
"""The fields of Stretch, in its order."""
Pieces = list[bytes | memoryview]
"""Pieces of bytes, to be written one after the other."""

LIMIT = 1 << 63
_HEAD = Struct("<I6s")
_EVEN = Struct("<qq")
_WIDTHS = {"B": 1 << 8, "H": 1 << 16, "I": 1 << 32, "Q": 1 << 64}
_SIGNED, _IS_EVEN = "q", b"="
_KINDS = frozenset(b"BHIQq=")
_ROWS_MAX = 1 << 16
"""Limit for the number of stretches that encoded bytes may state."""
_SMALL_ROWS_MAX = 8
_SINGLES_PER_REPEATED = 8


class _Constant(Numbers):
    """A column that repeats one number."""

    __slots__ = ()


@lru_cache(maxsize=64)
def _constant(number: int, times: int) -> _Constant:
    """Return a column of equal numbers. Cached, to be shared: in most blocks all counts and numbers of runs are 1."""
    code = _SIGNED if number < 0 else next(c for c, limit in _WIDTHS.items() if number < limit)
    return _Constant(code, [number] * times)


def _even(count: int, first: int, step: int) -> Column:
    return range(first, first + step * count, step) if step else _constant(first, count)


def _narrow(column: Column) -> Column:
    """Return a column of the same numbers that takes as few bytes as they need."""
    rows, first, last = len(column), column[0], column[-1]
    if isinstance(column, range):
        return column
    if first != last and (last - first) % (rows - 1) == 0:
        step = (last - first) // (rows - 1)
        even = range(first, last + step, step)
        if column == array(column.typecode, even):
            return even
    if first == last and column == column[:1] * rows:
        return _constant(first, rows)
    least, most = min(column), max(column)
    if least < 0:
        return column
    return array(next(code for code, limit in _WIDTHS.items() if most < limit), column)


def _split_repeated(columns: Columns) -> Columns:
    """Split stretches of several runs into stretches of one run each, if there are few of them.

    First sequences then rise evenly, and all steps and numbers of runs are equal, so these columns take no
    bytes. That saves more than the additional rows cost.
    """
    times = columns[-1]
    more = sum(times) - len(times)
    if not 0 < more <= len(times) // _SINGLES_PER_REPEATED:
        return columns
    for at in reversed([at for at, how_many in enumerate(times) if how_many > 1]):
        one = Stretch(*(column[at] for column in columns))
        parts = [one.part(nth, nth + 1)._replace(step=0) for nth in range(one.times)]
        for column, numbers in zip(columns, zip(*parts, strict=True), strict=True):
            assert isinstance(column, array), "made to be packed"
            column[at : at + 1] = array(column.typecode, numbers)
    return columns


def _total(column: Column) -> int:
    if isinstance(column, range):
        return (column[0] + column[-1]) * len(column) // 2
    return column[0] * len(column) if type(column) is _Constant else sum(column)


def _bounds(column: Column | tuple[int, ...]) -> tuple[int, int]:
    """Return the least and the greatest number."""
    ends = column[0], column[-1]
    if isinstance(column, range):
        return min(ends), max(ends)
    return ends if type(column) is _Constant else (min(column), max(column))


def _lower_bound(column: Column) -> int:
    """Return a lower bound of the numbers."""
    unsigned = isinstance(column, array) and column.typecode != _SIGNED
    return 0 if unsigned else _bounds(column)[0]


class Block:
    __slots__ = (
        "counts", "end", "first", "firsts", "messages", "position_max", "position_min", "positions", "runs", "size_bytes",
        "sizes", "steps", "times",
    )  # fmt: skip

    def __init__(self, columns: Columns) -> None:
        self.firsts, self.counts, self.positions, self.steps, self.sizes, self.times = columns
        self.first = self.firsts[0]
        self.end = self.firsts[-1] + self.counts[-1] * self.times[-1]
        """The sequence after the block's last message."""
        self.position_min, self.position_max = _bounds(self.positions)
        """The lowest and the highest log position of its runs."""
        if _bounds(self.times) == (1, 1):
            self.runs = len(self.times)
            self.messages, self.size_bytes = _total(self.counts), _total(self.sizes)
            """Totals of all runs."""
        else:
            self.runs = sum(self.times)
            self.messages = sum(map(mul, self.counts, self.times))
            self.size_bytes = sum(map(mul, self.sizes, self.times))
            lasts = map(add, self.positions, map(mul, self.steps, map(sub, self.times, repeat(1))))
            low, high = _bounds(tuple(lasts))
            self.position_min, self.position_max = (
                min(low, self.position_min),
                max(high, self.position_max),
            )

    @classmethod
    def from_columns(cls, columns: Columns) -> Block:
        """Make a block of columns of 8-byte numbers. The caller must not use the columns afterwards."""
        return cls(tuple(map(_narrow, _split_repeated(columns))))

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def has_gaps(self) -> bool:
        return self.messages < self.end - self.first

    def row(self, at: int) -> Stretch:
        return Stretch(*(column[at] for column in self.columns()))

    def columns(self, low: int = 0, high: int | None = None) -> Columns:
        all_ = self.firsts, self.counts, self.positions, self.steps, self.sizes, self.times
        if low == 0 and high is None:
            return all_
        return tuple(column[low:high] for column in all_)

    def find(self, sequence: int) -> Run | None:
        """Return the run that holds this sequence; None if it is in a gap. A stretch must begin there or before."""
        firsts = self.firsts
        if type(firsts) is range:  # Several times as fast as bisection.
            at = min((sequence - firsts.start) // firsts.step, len(firsts) - 1)
        else:
            at = bisect_right(firsts, sequence) - 1
        first, count = firsts[at], self.counts[at]
        nth = (sequence - first) // count
        if nth >= self.times[at]:
            return None
        position = self.positions[at] + nth * self.steps[at]
        return Run(first + nth * count, count, position, self.sizes[at])

    def parts(self) -> Iterator[Block | Records]:
        """Yield the block's two halves, or, if it is small, the records of its stretches.

        For callers that need the log positions more precisely than `position_min` and `position_max`.
        """
        if len(self) > _SMALL_ROWS_MAX:
            middle = len(self) // 2
            yield Block(self.columns(0, middle))
            yield Block(self.columns(middle))
        else:
            yield from self.records()

    def records(self) -> Iterator[Records]:
        """Yield the records of each stretch."""
        for stretch in self.stretches():
            yield stretch.records

    def stretches(self) -> Iterator[Stretch]:
        return map(Stretch, *self.columns())

    def check(self, start: int) -> None:
        """Raises ValueError if these stretches are impossible after sequence `start`."""
        single = self.runs == len(self)
        if (
            _bounds(self.counts)[0] < 1 or _bounds(self.times)[0] < 1
            or min(self.position_min, _lower_bound(self.sizes)) < 0 or self.position_max >= LIMIT
            or not (single or all(map(or_, self.steps, map(lt, self.times, repeat(2)))))
            or self.first < start or not self._is_in_order()
        ):  # fmt: skip
            raise ValueError(f"invalid stretches between {self.first} and {self.end}")

    def _is_in_order(self) -> bool:
        firsts, counts = self.firsts, self.counts
        if isinstance(firsts, range):
            if firsts.step < 1:
                return False
            if self.runs == len(self) and type(counts) is _Constant:
                return firsts.step >= counts[0]
        ends = map(add, firsts, map(mul, counts, self.times))
        return all(map(le, ends, islice(firsts, 1, None)))

    def encode(self) -> Pieces:
        """Return the bytes in pieces that never change; the columns themselves are not copied."""
        kinds, even, pieces = b"", b"", list[memoryview]()
        for column in self.columns():
            if isinstance(column, range):
                kinds, even = kinds + _IS_EVEN, even + _EVEN.pack(column.start, column.step)
            elif type(column) is _Constant:
                kinds, even = kinds + _IS_EVEN, even + _EVEN.pack(column[0], 0)
            else:
                kinds += column.typecode.encode()
                pieces.append(memoryview(column).cast("B"))
        return [_HEAD.pack(len(self), kinds) + even, *pieces]

    @classmethod
    def decode(cls, data: memoryview) -> tuple[Block, memoryview]:
        """Return the block and the data behind it. Raises ValueError for bytes that no `encode` has written."""
        if len(data) < _HEAD.size:
            raise ValueError(f"a truncated block of {len(data)} bytes")
        rows, kinds = _HEAD.unpack_from(data)
        at = _HEAD.size + _EVEN.size * kinds.count(_IS_EVEN)
        if not 0 < rows <= _ROWS_MAX or set(kinds) - _KINDS or len(data) < at:
            raise ValueError(
                f"an invalid block: {rows} stretches, columns {kinds}, {len(data)} bytes"
            )
        evens, columns = _EVEN.iter_unpack(data[_HEAD.size : at]), list[Column]()
        for kind in kinds:
            if kind == _IS_EVEN[0]:
                columns.append(_even(rows, *next(evens)))
                continue
            column = array(chr(kind))
            column.frombytes(data[at : at + rows * column.itemsize])
            if len(column) < rows:
                raise ValueError(f"a truncated block: {rows} stretches, {len(data)} bytes")
            columns.append(column)
            at += rows * column.itemsize
        return cls(tuple(columns)), data[at:]
