"""Records read together. Where each message is a record, a start has to read millions of them.

    | P 176 | P 176 | P 176 | P 176 | A 96 | P 184 | A 96 | P 240 | definitions |
      └───── of one size ─────┘       └─── of any size, messages and acks ───┘

The fields that such records have at the same place are columns: they are taken out of the bytes and compared in
a few calls, and no record becomes an object. For records of one size a column is a slice with a step.

Every header ends with its own checksum, so CRC-32 over any valid header of a store gives the same value, whatever
the header says. Headers are therefore valid if they give the same value as the first one, which is known to be valid.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import eq

from .checking import all_intact
from .checksum import crc32
from .column import leading_constant, leading_equal, leading_rising
from .record import HEADER_BYTES, MAGIC, TARGET_BYTES, VERSION, WHOLE_HEADER, Header, Kind, Record

WORD_BYTES = 8
"""Records begin and end at multiples of this: ALIGNMENT."""
SERIES_MIN = 16
"""Fewer are not worth it: looking at so many together takes as long as reading them one by one."""
SAME_SIZE_MIN = 512
"""Fewer records of one size, if others follow, are read together with these, as records of any size."""
HEADER_WORDS = HEADER_BYTES // WORD_BYTES
HEAD_WORDS = 20
"""The first words of a record, which have most of the columns: header, two targets, and the header of a batch."""
HEAD_BYTES = WORD_BYTES * HEAD_WORDS
FRONT, LENGTHS, TARGETS, CHAIN, EPOCH, POSITION, TIME, CHECKSUM = range(HEADER_WORDS)
"""Indexes of the words of a header. Where two u32 share a word, the second is its high half: LENGTHS has total and
body, TARGETS their count and the checksum of the rest, CHAIN chain and unsynced, CHECKSUM 0 and header checksum."""
_LOW = (1 << 32) - 1
_MAKE_FRONT = struct.Struct("<4sBBH")

Offsets = range | list[int]
"""Where records begin, in words from the start of a window."""


def _front(kind: Kind) -> int:
    """Return the first word of records of a kind that are neither encrypted nor groups."""
    return int.from_bytes(_MAKE_FRONT.pack(MAGIC, VERSION, kind, 0), "little")


MESSAGES, ACKS = (_front(Kind.PUBLISH), _front(Kind.CAPTURE)), _front(Kind.ACKS)


class Words:
    """Bytes as u64 numbers; bytes behind the last whole word are left out."""

    __slots__ = ("_array", "_whole", "data", "view")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._whole = data[: len(data) // WORD_BYTES * WORD_BYTES]  # Mostly all, which is no copy.
        self.view = memoryview(self._whole).cast("Q")
        """For access to single words."""
        self._array: array[int] | None = None

    @property
    def array(self) -> array[int]:
        """All words; to take a slice with a step is twice as fast as from the view."""
        if self._array is None:
            self._array = array("Q", self._whole)
        return self._array


class Series:
    """Valid records in order, of one epoch: batches, either all published or all captured, and acks."""

    __slots__ = ("_base", "_columns", "_halves", "_heads", "_offsets", "_words", "count", "header")

    def __init__(self, words: Words, offsets: Offsets, base: int) -> None:
        self._words, self._offsets, self._base = words, offsets, base
        self._columns: dict[int, array[int]] = {}
        self._halves: dict[int, array[int]] = {}
        self._heads: memoryview | None = None
        self.count = len(offsets)
        self.header = self._header(0)
        """Header of the first record."""

    def _header(self, which: int) -> Header:
        at = self._offsets[which]
        return Header._make(WHOLE_HEADER.unpack_from(self._words.data, WORD_BYTES * at))

    @property
    def one_size(self) -> bool:
        """Whether all records have the size and the kind of the first one."""
        return isinstance(self._offsets, range)

    @property
    def last(self) -> Header:
        """Header of the last record."""
        return self._header(-1)

    @property
    def position(self) -> int:
        """Log position of the first record."""
        return self.header.position

    @property
    def at(self) -> int:
        """The byte of the segment at which the first record begins."""
        return self._base + WORD_BYTES * self._offsets[0]

    @property
    def end_at(self) -> int:
        """The byte behind the last record."""
        return self._base + WORD_BYTES * self._offsets[-1] + self.last.total_bytes

    def from_byte(self, at: int) -> tuple[int, int] | None:
        """Return log position and byte of the first record that begins at byte `at` or later; None if none does."""
        which = bisect_left(self._offsets, (at - self._base) // WORD_BYTES)
        if which == self.count:
            return None
        return self.position + which, self._base + WORD_BYTES * self._offsets[which]

    def column(self, index: int) -> array[int]:
        """Return the u64 at byte 8 * `index` of each record; all records must be that long."""
        column = self._columns.get(index)
        if column is None:
            column = self._columns[index] = self._extract_column(index)
        return column

    def lows(self, index: int) -> array[int]:
        """Return the u32 in the low half of that u64."""
        return self._half_column(index)[::2]

    def highs(self, index: int) -> array[int]:
        """Return the u32 in its high half."""
        return self._half_column(index)[1::2]

    def _half_column(self, index: int) -> array[int]:
        halves = self._halves.get(index)
        if halves is None:
            halves = self._halves[index] = array("I", self.column(index).tobytes())
        return halves

    def _extract_column(self, index: int) -> array[int]:
        offsets, numbers = self._offsets, self._words.array
        if isinstance(offsets, range):
            return numbers[offsets.start + index : offsets.stop : offsets.step]
        if index >= HEAD_WORDS:
            return array("Q", [numbers[at + index] for at in offsets])
        if self._heads is None:
            self._heads = memoryview(b"".join(self._fronts(offsets))).cast("Q")
        # No array is made of these first, as for words: too few columns are taken out of them for that to pay.
        return array("Q", self._heads[index::HEAD_WORDS].tobytes())

    def _fronts(self, offsets: list[int]) -> list[bytes]:
        """Return the first HEAD_BYTES of each record: with these side by side, a column is a slice with a step."""
        data = self._words.data
        fronts = [data[at : at + HEAD_BYTES] for at in map(WORD_BYTES.__mul__, offsets)]
        # The last three may be cut off by the end of the data, because the shortest records have 64 bytes.
        fronts[-3:] = [front.ljust(HEAD_BYTES, b"\0") for front in fronts[-3:]]
        return fronts

    def slices(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return from each record `lengths` bytes, from byte `starts` on."""
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

    def head(self, count: int) -> Series:
        """Return the first `count` records."""
        return (
            self if count == self.count else Series(self._words, self._offsets[:count], self._base)
        )

    def skip(self, skipped: int) -> Series:
        """Return all but the first `skipped` records."""
        return Series(self._words, self._offsets[skipped:], self._base) if skipped else self

    @property
    def messages(self) -> Series | None:
        """The records that are not acks; None if there are none."""
        return self._select(acks=False)

    @property
    def acks(self) -> Series | None:
        return self._select(acks=True)

    def _select(self, *, acks: bool) -> Series | None:
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
        """Yield the records one by one."""
        data = memoryview(self._words.data)
        for offset in self._offsets:
            at = WORD_BYTES * offset
            header = Header._make(WHOLE_HEADER.unpack_from(data, at))
            yield Record(header, data[at + HEADER_BYTES : at + header.total_bytes])

    def valid_count(self) -> int:
        """Return how many records at the front are valid and can be read together, if the first one is valid."""
        chains, checksums = self.lows(CHAIN), self.highs(CHECKSUM)
        count = min(
            self._same_kind_count(), leading_constant(self.column(EPOCH)), leading_rising(self.column(POSITION), 1),
            1 + leading_equal(chains[1:], checksums[:-1]), self._complete_count(),
        )  # fmt: skip
        return self.head(count)._intact_count()

    def _same_kind_count(self) -> int:
        """Return how many records at the front are messages of one kind, or acks. The first one always is."""
        if self.one_size:
            return self.count
        fronts = self.column(FRONT)
        kind = next((front for front in fronts if front != ACKS), ACKS)
        ours = {kind, ACKS} if kind in MESSAGES else {ACKS}
        if sum(map(fronts.count, ours)) == self.count:
            return self.count
        return next(which for which, front in enumerate(fronts) if front not in ours)

    def _complete_count(self) -> int:
        """Return how many records at the front are as long as their targets and their body need."""
        targets = self.lows(TARGETS)
        if self.one_size:
            return leading_constant(targets)
        expected = [
            HEADER_BYTES + TARGET_BYTES * count + body + 7 & ~7
            for count, body in zip(targets, self.highs(LENGTHS), strict=True)
        ]
        totals = self.lows(LENGTHS).tolist()
        return self.count if totals == expected else [*map(eq, totals, expected)].index(False)

    def _intact_count(self) -> int:
        """Return how many records at the front have right checksums. All must be complete."""
        ends, rest_checksums = self._ends(), self.highs(TARGETS)
        begin = self.at - self._base
        data = memoryview(self._words.data)[begin : begin + ends[-1]]
        if all_intact(data, ends, rest_checksums):
            return self.count
        starts = (0, *ends[:-1])
        heads = array("I", [crc32(data[at : at + HEADER_BYTES]) for at in starts])
        rests = array(
            "I",
            [crc32(data[at + HEADER_BYTES : end]) for at, end in zip(starts, ends, strict=True)],
        )
        return min(leading_constant(heads), leading_equal(rests, rest_checksums))

    def _ends(self) -> range | list[int]:
        """Return the end of each record, in bytes from the start of the first one."""
        offsets = self._offsets
        if isinstance(offsets, range):
            record_bytes = WORD_BYTES * offsets.step
            return range(record_bytes, record_bytes * self.count + 1, record_bytes)
        ends = [WORD_BYTES * (offset - offsets[0]) for offset in offsets[1:]]
        return [*ends, self.end_at - self.at]


def one_by_one(visit: Callable[[Record], object]) -> Callable[[Record | Series], None]:
    """Wrap `visit`, which takes one record, so that it is called with each record of a series as well."""

    def visit_each(found: Record | Series) -> None:
        if isinstance(found, Series):
            for record in found.records():
                visit(record)
        else:
            visit(found)

    return visit_each


def find_series(words: Words, at: int, base: int, count_max: int) -> Series | None:
    """Return the valid record at word `at` of a window, with the records behind it that are valid and can be read
    together with it, at most `count_max`. None if there are fewer than SERIES_MIN.

    Args:
        base: the byte of the segment at which the window begins.
    """
    front = words.view[at]
    if front not in MESSAGES and front != ACKS:
        return None
    offsets = _same_size_offsets(words, at, front, count_max) or _any_size_offsets(
        words, at, count_max
    )
    if len(offsets) < SERIES_MIN:
        return None
    series = Series(words, offsets, base)
    count = series.valid_count()
    return None if count < SERIES_MIN else series.head(count)


def _same_size_offsets(words: Words, at: int, front: int, count_max: int) -> range | None:
    whole = words.view
    lengths = whole[at + LENGTHS]
    step = (lengths & _LOW) // WORD_BYTES
    count = min(count_max, (len(whole) - at) // step)
    if count < SERIES_MIN or (whole[at + step], whole[at + step + LENGTHS]) != (front, lengths):
        return None
    offsets = range(at, at + count * step, step)
    series = Series(words, offsets, 0)
    alike = min(map(leading_constant, map(series.column, (FRONT, LENGTHS))))
    return None if alike < min(count, SAME_SIZE_MIN) else offsets[:alike]


def _any_size_offsets(words: Words, at: int, count_max: int) -> list[int]:
    """Return where records of any size and kind begin, following the lengths in their headers."""
    offsets: list[int] = []
    numbers, append = words.array, offsets.append
    with suppress(IndexError):  # A record continues behind the window.
        for _ in range(count_max):
            length = (numbers[at + LENGTHS] & _LOW) // WORD_BYTES
            if length < HEADER_WORDS:
                break
            append(at)
            at += length
    if at > len(numbers):
        offsets.pop()
    return offsets
