"""Records read together: where each message is a record, a start comes by millions of them.

    | P 176 | P 176 | P 176 | P 176 | A 96 | P 184 | A 96 | P 240 | definitions |
      └───── of one size ─────┘       └─── of any size, messages and acks ───┘

What such records have at the same place is a column, taken out of their bytes and compared in a few calls;
no record becomes an object of its own. Of those of one size, that is a slice with a step.

A header ends with its own checksum: behind any valid one of a store CRC-32 is in one and the same state, whatever
it says. So headers are right where that is the state it is in behind the first one, which is known to be valid.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import eq

from .checking import all_whole
from .checksum import crc32
from .column import leading_constant, leading_equal, leading_rising
from .record import HEADER_BYTES, MAGIC, TARGET_BYTES, VERSION, WHOLE_HEADER, Header, Kind, Record

WORD_BYTES = 8
"""Records begin and end at multiples of it: ALIGNMENT."""
SERIES_MIN = 16
"""Fewer are not worth it: to look at so many together takes as long as one by one."""
LIKE_MIN = 512
"""Fewer of one size, where others follow, are read with these."""
HEADER_WORDS = HEADER_BYTES // WORD_BYTES
HEAD_WORDS = 20
"""As far as most columns are: header, two targets, and the header of a batch."""
HEAD_BYTES = WORD_BYTES * HEAD_WORDS
FRONT, LENGTHS, TARGETS, CHAIN, EPOCH, POSITION, TIME, CHECKSUM = range(HEADER_WORDS)
"""Words of a header. Of two numbers in one, the second is its high half: of LENGTHS total and body, of
TARGETS their count and the checksum of the rest, of CHAIN that and unsynced, of CHECKSUM 0 and that."""
_LOW = (1 << 32) - 1
_MAKE_FRONT = struct.Struct("<4sBBH")

Offsets = range | list[int]
"""Words of a window at which records begin."""


def _front(kind: Kind) -> int:
    """First word of records of a kind that are neither encrypted nor groups."""
    return int.from_bytes(_MAKE_FRONT.pack(MAGIC, VERSION, kind, 0), "little")


MESSAGES, ACKS = (_front(Kind.PUBLISH), _front(Kind.CAPTURE)), _front(Kind.ACKS)


class Words:
    """Bytes as the numbers in them; what goes beyond whole words is in none."""

    __slots__ = ("_array", "_whole", "data", "view")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._whole = data[: len(data) // WORD_BYTES * WORD_BYTES]  # No copy, as mostly: all of it.
        self.view = memoryview(self._whole).cast("Q")
        """To look at some of them."""
        self._array: array[int] | None = None

    @property
    def array(self) -> array[int]:
        """All of them, to take every so many of: twice as fast as of the view."""
        if self._array is None:
            self._array = array("Q", self._whole)
        return self._array


class Series:
    """Valid records that follow one another, of one epoch: batches, all published or all captured, and acks."""

    __slots__ = ("_base", "_columns", "_halves", "_heads", "_offsets", "_words", "count", "header")

    def __init__(self, words: Words, offsets: Offsets, base: int) -> None:
        self._words, self._offsets, self._base = words, offsets, base
        self._columns: dict[int, array[int]] = {}
        self._halves: dict[int, array[int]] = {}
        self._heads: memoryview | None = None
        self.count = len(offsets)
        self.header = self._header(0)
        """Of the first one."""

    def _header(self, which: int) -> Header:
        at = self._offsets[which]
        return Header._make(WHOLE_HEADER.unpack_from(self._words.data, WORD_BYTES * at))

    @property
    def one_size(self) -> bool:
        """All have the size and the kind of the first one."""
        return isinstance(self._offsets, range)

    @property
    def last(self) -> Header:
        """The header of the last one."""
        return self._header(-1)

    @property
    def position(self) -> int:
        """Log position of the first one."""
        return self.header.position

    @property
    def at(self) -> int:
        """The byte of the segment that the first one begins at."""
        return self._base + WORD_BYTES * self._offsets[0]

    @property
    def end_at(self) -> int:
        """The byte behind the last one."""
        return self._base + WORD_BYTES * self._offsets[-1] + self.last.total_bytes

    def from_byte(self, at: int) -> tuple[int, int] | None:
        """Log position and byte of the first one that begins there or behind it."""
        which = bisect_left(self._offsets, (at - self._base) // WORD_BYTES)
        if which == self.count:
            return None
        return self.position + which, self._base + WORD_BYTES * self._offsets[which]

    def column(self, index: int) -> array[int]:
        """The u64 that stands at byte 8 * `index` of each record; all have to be so long."""
        column = self._columns.get(index)
        if column is None:
            column = self._columns[index] = self._taken(index)
        return column

    def lows(self, index: int) -> array[int]:
        """The first u32 of that."""
        return self._of_halves(index)[::2]

    def highs(self, index: int) -> array[int]:
        """The second one."""
        return self._of_halves(index)[1::2]

    def _of_halves(self, index: int) -> array[int]:
        halves = self._halves.get(index)
        if halves is None:
            halves = self._halves[index] = array("I", self.column(index).tobytes())
        return halves

    def _taken(self, index: int) -> array[int]:
        offsets, numbers = self._offsets, self._words.array
        if isinstance(offsets, range):
            return numbers[offsets.start + index : offsets.stop : offsets.step]
        if index >= HEAD_WORDS:
            return array("Q", [numbers[at + index] for at in offsets])
        if self._heads is None:
            self._heads = memoryview(b"".join(self._fronts(offsets))).cast("Q")
        # Too few columns are taken of these to make an array first.
        return array("Q", self._heads[index::HEAD_WORDS].tobytes())

    def _fronts(self, offsets: list[int]) -> list[bytes]:
        """Of each record, equally long: once these stand side by side, a column is a slice of them."""
        data = self._words.data
        fronts = [data[at : at + HEAD_BYTES] for at in map(WORD_BYTES.__mul__, offsets)]
        # Of the last ones so much may not be there: the shortest are 64 bytes.
        fronts[-3:] = [front.ljust(HEAD_BYTES, b"\0") for front in fronts[-3:]]
        return fronts

    def cut(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """So many bytes from there on of each record."""
        data, offsets = self._words.data, self._offsets
        if (
            isinstance(offsets, range)
            and starts.count(starts[0]) == lengths.count(lengths[0]) == self.count
        ):
            before, length, each = starts[0], lengths[0], WORD_BYTES * offsets.step
            begin = WORD_BYTES * offsets[0]
            one = f"{before}x{length}s{each - before - length}x"
            records = memoryview(data)[begin : begin + each * self.count]
            return [*chain.from_iterable(struct.iter_unpack(one, records))]
        ats = [WORD_BYTES * offset + start for offset, start in zip(offsets, starts, strict=True)]
        return [data[at : at + length] for at, length in zip(ats, lengths, strict=True)]

    def before(self, count: int) -> Series:
        """The first so many."""
        return (
            self if count == self.count else Series(self._words, self._offsets[:count], self._base)
        )

    def behind(self, skipped: int) -> Series:
        """All but the first so many."""
        return Series(self._words, self._offsets[skipped:], self._base) if skipped else self

    @property
    def messages(self) -> Series | None:
        """Those that are no acks."""
        return self._part(acks=False)

    @property
    def acks(self) -> Series | None:
        return self._part(acks=True)

    def _part(self, *, acks: bool) -> Series | None:
        if self.one_size:
            return self if (self._words.view[self._offsets[0]] == ACKS) == acks else None
        fronts = self.column(FRONT)
        count = fronts.count(ACKS)
        if count in (0, self.count):
            return self if bool(count) == acks else None
        both = zip(self._offsets, fronts, strict=True)
        some = [offset for offset, front in both if (front == ACKS) == acks]
        return Series(self._words, some, self._base)

    def records(self) -> Iterator[Record]:
        """One by one."""
        data = memoryview(self._words.data)
        for offset in self._offsets:
            at = WORD_BYTES * offset
            header = Header._make(WHOLE_HEADER.unpack_from(data, at))
            yield Record(header, data[at + HEADER_BYTES : at + header.total_bytes])

    def valid(self) -> int:
        """How many of the first ones are, and can be read together, if the very first one is."""
        chains, checksums = self.lows(CHAIN), self.highs(CHECKSUM)
        count = min(
            self._of_our_kinds(), leading_constant(self.column(EPOCH)), leading_rising(self.column(POSITION), 1),
            1 + leading_equal(chains[1:], checksums[:-1]), self._complete(),
        )  # fmt: skip
        return self.before(count)._whole()

    def _of_our_kinds(self) -> int:
        """So many of the first ones are messages of one kind, and acks. At least the first one is."""
        if self.one_size:
            return self.count
        fronts = self.column(FRONT)
        kind = next((front for front in fronts if front != ACKS), ACKS)
        ours = {kind, ACKS} if kind in MESSAGES else {ACKS}
        if sum(map(fronts.count, ours)) == self.count:
            return self.count
        return next(which for which, front in enumerate(fronts) if front not in ours)

    def _complete(self) -> int:
        """So many of the first ones are as long as what they say is in them."""
        targets = self.lows(TARGETS)
        if self.one_size:
            return leading_constant(targets)
        expected = [
            HEADER_BYTES + TARGET_BYTES * count + body + 7 & ~7
            for count, body in zip(targets, self.highs(LENGTHS), strict=True)
        ]
        totals = self.lows(LENGTHS).tolist()
        return self.count if totals == expected else [*map(eq, totals, expected)].index(False)

    def _whole(self) -> int:
        """So many of the first ones have right checksums; complete they are."""
        ends, of_rests = self._ends(), self.highs(TARGETS)
        begin = self.at - self._base
        data = memoryview(self._words.data)[begin : begin + ends[-1]]
        if all_whole(data, ends, of_rests):
            return self.count
        starts = (0, *ends[:-1])
        heads = array("I", [crc32(data[at : at + HEADER_BYTES]) for at in starts])
        rests = array(
            "I",
            [crc32(data[at + HEADER_BYTES : end]) for at, end in zip(starts, ends, strict=True)],
        )
        return min(leading_constant(heads), leading_equal(rests, of_rests))

    def _ends(self) -> range | list[int]:
        """The byte behind each, from the first one's on."""
        offsets = self._offsets
        if isinstance(offsets, range):
            record_bytes = WORD_BYTES * offsets.step
            return range(record_bytes, record_bytes * self.count + 1, record_bytes)
        ends = [WORD_BYTES * (offset - offsets[0]) for offset in offsets[1:]]
        return [*ends, self.end_at - self.at]


def one_by_one(visit: Callable[[Record], object]) -> Callable[[Record | Series], None]:
    """For what is shown records together, and wants each for itself."""

    def visit_each(found: Record | Series) -> None:
        if isinstance(found, Series):
            for record in found.records():
                visit(record)
        else:
            visit(found)

    return visit_each


def find_series(words: Words, at: int, base: int, count_max: int) -> Series | None:
    """The valid record at word `at` of a window, and those behind it that are valid and can be read together
    with it, `count_max` at most. None: not enough of them.

    Args:
        base: the byte of the segment that the window begins at.
    """
    front = words.view[at]
    if front not in MESSAGES and front != ACKS:
        return None
    offsets = _of_one_size(words, at, front, count_max) or _of_any_size(words, at, count_max)
    if len(offsets) < SERIES_MIN:
        return None
    series = Series(words, offsets, base)
    count = series.valid()
    return None if count < SERIES_MIN else series.before(count)


def _of_one_size(words: Words, at: int, front: int, count_max: int) -> range | None:
    whole = words.view
    lengths = whole[at + LENGTHS]
    step = (lengths & _LOW) // WORD_BYTES
    count = min(count_max, (len(whole) - at) // step)
    if count < SERIES_MIN or (whole[at + step], whole[at + step + LENGTHS]) != (front, lengths):
        return None
    offsets = range(at, at + count * step, step)
    series = Series(words, offsets, 0)
    alike = min(map(leading_constant, map(series.column, (FRONT, LENGTHS))))
    return None if alike < min(count, LIKE_MIN) else offsets[:alike]


def _of_any_size(words: Words, at: int, count_max: int) -> list[int]:
    """Of any kind: as each says where the next one is."""
    offsets: list[int] = []
    numbers, append = words.array, offsets.append
    with suppress(IndexError):  # It goes on behind the window.
        for _ in range(count_max):
            length = (numbers[at + LENGTHS] & _LOW) // WORD_BYTES
            if length < HEADER_WORDS:
                break
            append(at)
            at += length
    if at > len(numbers):
        offsets.pop()
    return offsets
