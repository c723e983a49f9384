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
from itertools import chain
from operator import eq

from .checksum import crc32
from .column import leading_constant, leading_equal, leading_rising
from .record import HEADER_BYTES, MAGIC, TARGET_BYTES, VERSION, WHOLE_HEADER, Header, Kind, Record

CODES = {1: "Q", 2: "I"}
"""Type codes of numbers of which so many are in a word."""
WORD_BYTES = 8
"""Records begin and end at multiples of it: ALIGNMENT."""
SERIES_MIN = 16
"""Fewer are not worth it: to look at so many together takes as long as one by one."""
LIKE_MIN = 512
"""Fewer of one size, where others follow, are read with these."""
AT_ONCE = 16
"""Of one size, so many are taken apart by each call."""
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

    __slots__ = ("_arrays", "_whole", "data", "view")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._whole = data[: len(data) // WORD_BYTES * WORD_BYTES]  # No copy, as mostly: all of it.
        self.view = memoryview(self._whole).cast("Q")
        """To look at some of them."""
        self._arrays: dict[int, array[int]] = {}

    def array(self, in_word: int) -> array[int]:
        """All of them, so many in a word, to take every so many of: twice as fast as of the view."""
        found = self._arrays.get(in_word)
        if found is None:
            found = self._arrays[in_word] = array(CODES[in_word], self._whole)
        return found


class Series:
    """Valid records that follow one another, of one epoch: batches, all published or all captured, and acks."""

    __slots__ = ("_base", "_columns", "_heads", "_offsets", "_words", "count", "header")

    def __init__(self, words: Words, offsets: Offsets, base: int) -> None:
        self._words, self._offsets, self._base = words, offsets, base
        self._columns: dict[tuple[int, int], array[int]] = {}
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
        return self._column(1, index)

    def lows(self, index: int) -> array[int]:
        """The first u32 of that."""
        return self._column(2, 2 * index)

    def highs(self, index: int) -> array[int]:
        """The second one."""
        return self._column(2, 2 * index + 1)

    def _column(self, in_word: int, index: int) -> array[int]:
        """Of numbers of which there are so many in a word."""
        column = self._columns.get((in_word, index))
        if column is None:
            column = self._columns[in_word, index] = self._taken(in_word, index)
        return column

    def _taken(self, in_word: int, index: int) -> array[int]:
        offsets = self._offsets
        if isinstance(offsets, range):
            begin, end, step = (in_word * at for at in (offsets.start, offsets.stop, offsets.step))
            return self._words.array(in_word)[begin + index : end : step]
        code = CODES[in_word]
        if index >= in_word * HEAD_WORDS:
            numbers = self._words.array(in_word)
            return array(code, [numbers[in_word * at + index] for at in offsets])
        if self._heads is None:
            self._heads = memoryview(b"".join(self._fronts(offsets)))
        # Too few columns are taken of these to make an array first.
        heads: memoryview = self._heads.cast(code)  # type: ignore[call-overload]
        return array(code, heads[index :: in_word * HEAD_WORDS].tobytes())

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
        """How many of the first ones are, if the very first one is."""
        chains, checksums = self.lows(CHAIN), self.highs(CHECKSUM)
        return min(
            leading_constant(self.column(EPOCH)), leading_rising(self.column(POSITION), 1),
            1 + leading_equal(chains[1:], checksums[:-1]), self._complete(), self._whole(),
        )  # fmt: skip

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
        """So many of the first ones have right checksums."""
        data, offsets = memoryview(self._words.data), self._offsets
        begin = WORD_BYTES * offsets[0]
        if isinstance(offsets, range):
            record_bytes = WORD_BYTES * offsets.step
            both = f"{HEADER_BYTES}s{record_bytes - HEADER_BYTES}s"
            records = data[begin : begin + self.count * record_bytes]
            middle = self.count // AT_ONCE * AT_ONCE * record_bytes
            parts = chain(
                chain.from_iterable(struct.iter_unpack(AT_ONCE * both, records[:middle])),
                chain.from_iterable(struct.iter_unpack(both, records[middle:])),
            )
            checksums = array("I", [*map(crc32, parts)])
            of_heads, of_rests = checksums[::2], checksums[1::2]
        else:
            ats = [WORD_BYTES * offset + HEADER_BYTES for offset in offsets]
            ends = [at + size for at, size in zip(ats, self.lows(LENGTHS), strict=True)]
            of_heads = array("I", [crc32(data[at - HEADER_BYTES : at]) for at in ats])
            of_rests = array(
                "I",
                [crc32(data[at : end - HEADER_BYTES]) for at, end in zip(ats, ends, strict=True)],
            )
        return min(leading_constant(of_heads), leading_equal(of_rests, self.highs(TARGETS)))


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
    """Messages of one kind, and acks."""
    offsets: list[int] = []
    whole, messages = words.view, 0
    total_bytes, end = whole.cast("B").cast("I")[2 * LENGTHS :: 2], len(whole)
    while at + HEADER_WORDS <= end and len(offsets) < count_max:
        front, following = whole[at], at + total_bytes[at] // WORD_BYTES
        if front not in (messages, ACKS):
            if messages or front not in MESSAGES:
                break
            messages = front
        if not at + HEADER_WORDS <= following <= end:  # Damage, or it goes on behind the window.
            break
        offsets.append(at)
        at = following
    return offsets
