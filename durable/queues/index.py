"""Where the messages of a lane are in the log: runs, and runs that repeat as one stretch.

A run is what one record brought into this lane. Consecutive runs with equal counts, equal sizes and equal
steps between their log positions are one stretch, so ten million messages that were published one by one take
as much memory as one. Runs that are not alike make thousands of stretches: the older ones are packed in blocks,
which take four to twenty bytes per stretch and never change.

    | block | block | block | rows |      new messages are appended to the rows; 4096 stretches of them
                                          become a block
    | block | rows  | block | rows |      a run was moved: its block is open (as rows) until another
                                          block has to be opened

Bytes (`encode`), little endian: what `Rows` writes, with the end. If there are blocks, these come before it:
2^63 + 2 as u64, the first sequence that counts u64, number of blocks u32, and what each `Block` writes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from struct import Struct

from .arrivals import Arrivals
from .block import LIMIT, Block, Columns, Pieces
from .rows import FIELDS, Rows
from .runs import Records, Run, Stretch

_BLOCKS = Struct("<QQI")
_MAGIC = LIMIT + 2
_ROWS_MAX = 4096
_STALE_MIN = 8
_ONE_BY_ONE_MAX = 8
"""Up to this number, stretches are yielded one by one: making a block of them is not worth it."""
_FIRST = attrgetter("first")
_NO_BLOCKS, _NO_ROWS = list[Block | Rows](), Rows()
"""Shared by all lanes that never had a message; never written to."""


class Index:
    __slots__ = (
        "_blocks",
        "_expected_position",
        "_firsts",
        "_last_run",
        "_rest",
        "_tail",
        "end",
        "start",
    )

    def __init__(self) -> None:
        self.start = self.end = 0
        """`start` is the first sequence of the first run, or `end` if there is none; `end` is the sequence after the
        last message. Runs before `start` may still be stored, but do not count."""
        self._blocks = _NO_BLOCKS
        self._set_tail(_NO_ROWS)
        # The log position at which a run would continue the last stretch, and the count and size of its runs.
        self._expected_position = -1
        self._last_run = (0, 0)

    def _set_tail(self, tail: Rows) -> None:
        self._tail, self._firsts, self._rest = tail, tail.firsts, tail.rest

    def __bool__(self) -> bool:
        """Whether there are any runs."""
        return self.start < self.end

    def append(self, first: int, count: int, position: int, size_bytes: int) -> None:
        """Append a run. `first` is `end`, or more where damaged records have left a gap."""
        if first == self.end and (count, size_bytes) == self._last_run:
            if position == self._expected_position:
                self._rest[-1] += 1
                self._expected_position += self._rest[-3]
            elif not self._add_second(position):
                self._add(first, count, position, size_bytes)
        else:
            assert first >= self.end, f"runs come in order: {first} before {self.end}"
            assert count > 0 <= size_bytes, f"impossible run of {count}, {size_bytes} bytes"
            self._add(first, count, position, size_bytes)
        self.end = first + count

    def append_all(self, arrivals: Arrivals) -> None:
        """Append runs, all at once."""
        stretch = arrivals.stretch
        if stretch is not None:
            self._append_stretch(stretch)
        else:
            self.append_rows(arrivals.columns())

    def append_rows(self, columns: Columns) -> None:
        """Append stretches, at least one, as columns of 8-byte numbers."""
        firsts, counts, *_, times = columns
        assert firsts[0] >= self.end, f"runs come in order: {firsts[0]} before {self.end}"
        if self.start == self.end:
            self.start = firsts[0]
        at = 0
        while at < len(firsts):
            high = min(at + self._make_room(), len(firsts))
            self._tail.extend(tuple(column[at:high] for column in columns))
            self.end, at = firsts[high - 1] + counts[high - 1] * times[high - 1], high
        self._note_last()

    def _append_stretch(self, stretch: Stretch) -> None:
        first, count, position, step, size_bytes, times = stretch
        nth = 0
        # Append runs one by one, until the last stretch is one that all remaining runs continue.
        while nth < times and not (
            self._expected_position == position + nth * step
            and self._rest[-3] == step
            and self._last_run == (count, size_bytes)
            and self.end == first + nth * count
        ):
            self.append(first + nth * count, count, position + nth * step, size_bytes)
            nth += 1
        if nth < times:
            self._rest[-1] += times - nth
            self._expected_position += step * (times - nth)
            self.end = stretch.end

    def _add_second(self, position: int) -> bool:
        """If the last stretch is one run, make a run like it at this log position its second. Return whether it is."""
        rest = self._rest
        if rest[-1] > 1 or rest[-4] == position:
            return False
        rest[-1], rest[-3] = 2, position - rest[-4]
        self._expected_position = position + rest[-3]
        return True

    def _add(self, first: int, count: int, position: int, size_bytes: int) -> None:
        """Append a run that does not continue the last stretch."""
        self._make_room()
        if self.start == self.end:
            self.start = first
        self._firsts.append(first)
        self._rest.extend((count, position, 0, size_bytes, 1))
        self._expected_position, self._last_run = -1, (count, size_bytes)

    def _make_room(self) -> int:
        """Make room at the end of the rows; return for how many stretches, at least 1."""
        if len(self._firsts) >= _ROWS_MAX:
            self._tidy()
            self._blocks = [*self._blocks, *_blocks_of(self._tail)]
            self._tail.drop(len(self._tail))
        elif self._tail is _NO_ROWS:
            self._set_tail(Rows())
        return _ROWS_MAX - len(self._firsts)

    def find(self, sequence: int) -> Run | None:
        """Return the run that holds this sequence; None if it is dropped, in a gap, or not there yet."""
        at = bisect_right(self._firsts, sequence) - 1
        if sequence < self.start:
            return None
        if at < 0:
            blocks = self._blocks
            if not blocks:
                return None
            # Most lookups are in the first block.
            if len(blocks) > 1 and blocks[1].first <= sequence:
                return blocks[bisect_right(blocks, sequence, key=_FIRST) - 1].find(sequence)
            return blocks[0].find(sequence)
        # The same as `Rows.find`, written out: calling it would make each of these lookups a tenth slower.
        first, rest, field = self._firsts[at], self._rest, at * FIELDS
        count = rest[field]
        nth = (sequence - first) // count
        if nth >= rest[field + 4]:
            return None
        position = rest[field + 1] + nth * rest[field + 2]
        return Run(first + nth * count, count, position, rest[field + 3])

    def _spans(self, start: int, end: int) -> Iterator[tuple[Block | Rows, int, int]]:
        """Yield (part, low, high): stretches low to high of that part include all that overlap [start, end)."""
        blocks = self._blocks
        first = max(0, bisect_right(blocks, start, key=_FIRST) - 1)
        for number in range(first, len(blocks) + 1):
            part = blocks[number] if number < len(blocks) else self._tail
            low = max(0, bisect_right(part.firsts, start) - 1)
            high = bisect_left(part.firsts, end)
            if low < high:
                yield part, low, high
            if high < len(part):
                return

    def _parts(self, start: int, end: int) -> Iterator[Stretch | Block]:
        """Yield the runs that overlap [start, end), in order: where there are many, some thousand as one block."""
        start = max(start, self.start)
        for part, low, high in self._spans(start, end):
            if isinstance(part, Block) and start <= part.first and part.end <= end:
                yield part
                continue
            if (one := part.row(low).overlapping(start, end)).times:
                yield one
            inside = part.columns(low + 1, max(low + 1, high - 1))
            if len(inside[0]) > _ONE_BY_ONE_MAX:
                yield Block(inside)
            else:
                yield from map(Stretch, *inside)
            if high - low > 1:
                yield part.row(high - 1).overlapping(start, end)

    def stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """Yield the runs that overlap [start, end) as stretches, in order."""
        for part in self._parts(start, end):
            if isinstance(part, Block):
                yield from part.stretches()
            else:
                yield part

    def runs(self, start: int, end: int) -> Iterator[Run]:
        """Yield the runs that overlap [start, end), in order."""
        for first, count, position, step, size, times in self.stretches(start, end):
            for nth in range(times):
                yield Run(first + nth * count, count, position + nth * step, size)

    def records(self, start: int, end: int) -> Iterator[Records | Block]:
        """Yield the records of the runs that overlap [start, end), in order. Blocks are yielded as they are, because
        a block's totals are a few numbers, however many records it stands for."""
        for part in self._parts(start, end):
            yield part if isinstance(part, Block) else part.records

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in [start, end) that no run covers."""
        for part in self._parts(start, end):
            for one in part.stretches() if isinstance(part, Block) and part.has_gaps else (part,):
                if one.first > start:
                    yield start, one.first
                start = max(start, one.end)
        if start < end:
            yield start, end

    def size_bytes(self, start: int, end: int) -> int:
        """Return the bytes of the messages in [start, end)."""
        run = self.find(start)
        if run is not None and end <= run.first + run.count:
            return run.size_of(start, end)
        last = self.find(end - 1)
        size = 0 if run is None else -run.size_of(run.first, start)
        size -= 0 if last is None else last.size_of(end, last.first + last.count)
        for part in self._parts(start, end):
            size += part.size_bytes * (1 if isinstance(part, Block) else part.times)
        return size

    def drop_before(self, sequence: int) -> None:
        """Forget runs that lie entirely before `sequence`."""
        if sequence <= self.start:
            return
        firsts, rest = self._firsts, self._rest
        at = bisect_right(firsts, sequence) - 1
        if sequence >= self.end:
            self.start, at = self.end, len(firsts)
            self._expected_position, self._last_run = -1, (0, 0)
            self._blocks.clear()
        elif at >= 0:
            first, field = firsts[at], at * FIELDS
            nth = (sequence - first) // rest[field]
            in_gap = nth >= rest[field + 4]
            self.start = firsts[at + 1] if in_gap else first + nth * rest[field]
            if self._blocks:
                self._blocks.clear()
        else:
            self._drop_blocks(sequence)
        if at > _STALE_MIN and 2 * at > len(firsts):
            self._tail.drop(at)

    def _drop_blocks(self, sequence: int) -> None:
        """Forget blocks that lie entirely before `sequence`, which is before the rows."""
        blocks = self._blocks
        if len(blocks) > 1 and blocks[1].first <= sequence:
            del blocks[: bisect_right(blocks, sequence, key=_FIRST) - 1]
        run = blocks[0].find(sequence)
        if run is None:  # In a gap, which may reach to the end of the block.
            run = next(self.runs(sequence, self.end))
            if run.first >= blocks[0].end:
                del blocks[0]
        self.start = run.first

    def drop_blocks(self, is_settled: Callable[[int, int], bool]) -> None:
        """Forget each block for which `is_settled(first, end)` is true, wherever it is. Otherwise one message that stays for
        long would keep all blocks behind it. The rest is as if the forgotten records had never existed."""
        self._blocks = [
            one
            for one in self._blocks
            if isinstance(one, Rows) or not is_settled(one.first, one.end)
        ]

    def _tidy(self) -> None:
        """Remove stretches and runs before `start` from the rows."""
        if self.start == self.end:
            self._tail.drop(len(self._tail))
        elif (at := bisect_right(self._firsts, self.start) - 1) >= 0:
            self._tail.drop(at)
            self._tail.begin_at(self.start)

    def move(self, first: int, position: int) -> bool:
        """Set the log position of the run that begins at `first`. Return False if that run was dropped.

        From then on log positions need not rise with sequences.

        Raises:
            ValueError: no run begins there.
        """
        run = self.find(first)
        if run is None:
            return False
        if run.first != first:
            raise ValueError(f"{run} does not begin at {first}")
        if len(self._tail) and self._tail.first <= first:
            self._tail.move(first, position)
            self._note_last()
        else:
            self._open(first).move(first, position)
        return True

    def _open(self, first: int) -> Rows:
        """Return the block with this sequence as rows that can be changed; pack the block opened before. One open
        block is enough, because runs are moved in order."""
        number = bisect_right(self._blocks, first, key=_FIRST) - 1
        found = self._blocks[number]
        if isinstance(found, Rows):
            return found
        rows = self._blocks[number] = Rows.from_columns(found.columns())
        self._close(besides=rows)
        return rows

    def _close(self, besides: Rows | None = None) -> None:
        blocks = self._blocks
        for number in reversed(range(len(blocks))):
            rows = blocks[number]
            if isinstance(rows, Rows) and rows is not besides:
                blocks[number : number + 1] = _blocks_of(rows)

    def _note_last(self) -> None:
        last = self._tail.row(len(self._tail) - 1)
        self._last_run = last.count, last.size_bytes
        self._expected_position = last.position + last.step * last.times if last.step else -1

    def encode(self) -> Pieces:
        """Return the bytes in pieces, which later changes do not alter; blocks are not copied for that."""
        self._tidy()
        self._close()
        pieces: Pieces = []
        if self._blocks:
            pieces.append(_BLOCKS.pack(_MAGIC, self.start, len(self._blocks)))
        for block in self._blocks:
            assert isinstance(block, Block), "all are closed"
            pieces += block.encode()
        return [*pieces, self._tail.encode(self.end)]

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Index:
        """Raises ValueError for bytes that no `encode` has written."""
        start, blocks, view = _decode_blocks(memoryview(data))
        rows, end = Rows.decode(view)
        if len(rows) > _ROWS_MAX:  # Written by a version that had no blocks.
            blocks, rows = blocks + _blocks_of(rows), Rows()
        checked = [*blocks, *_blocks_of(rows, Block)]
        at = 0
        for block in checked:
            block.check(at)
            at = block.end
        if end >= LIMIT or at not in (0, end):
            raise ValueError(f"the index ends at {at} instead of {end}")
        made = cls()
        made._set_tail(rows)
        made._blocks, made.end = [*blocks], end
        made.start = checked[0].first if checked else end
        if start is not None:
            made.drop_before(start)
            if made.start != start or len(made._blocks) < len(blocks):
                raise ValueError(f"the index begins at {made.start} instead of {start}")
        if rows:
            made._note_last()
        return made


def _decode_blocks(data: memoryview) -> tuple[int | None, list[Block], memoryview]:
    """Return the first sequence that counts (None if there are no blocks), the blocks, and the data behind them."""
    if len(data) < _BLOCKS.size or _BLOCKS.unpack_from(data)[0] != _MAGIC:
        return None, [], data
    _, start, count = _BLOCKS.unpack_from(data)
    data, blocks = data[_BLOCKS.size :], list[Block]()
    for _ in range(count):
        block, data = Block.decode(data)
        blocks.append(block)
    return start, blocks, data


def _blocks_of(rows: Rows, make: Callable[[Columns], Block] = Block.from_columns) -> list[Block]:
    return [make(rows.columns(low, low + _ROWS_MAX)) for low in range(0, len(rows), _ROWS_MAX)]
