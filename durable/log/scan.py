"""Finds the valid records in the bytes of a segment, whatever else is there.

    | record | record | ~~~~~~~~~~~~ | record | record | 0 0 0 0 |
      Found    Found      Damaged      Found    Found

The function that reads bytes is an argument: nothing here knows of files. After damage the search goes on at
every multiple of 8 that has the magic; a record found there must be valid as a whole, and have a log position
that can come next. See record.py for why payloads cannot pass for records. A body that cannot be decrypted is
damage like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from ..errors import StoreKeyMissing
from .record import (
    ALIGNMENT,
    ENCRYPTED,
    HEADER_BYTES,
    MAGIC,
    SEAL_KIND,
    Header,
    Record,
    body_is_intact,
    read_header,
    read_record,
)
from .series import SERIES_MIN, WORD_BYTES, Series, Words, find_series

WINDOW_BYTES = 1 << 20
"""Bytes read at a time: enough to make the cost of calls negligible, and few enough for the processor's cache."""
POSITION_MAX = 2**64 - 1
ZEROS = bytes(WINDOW_BYTES)
TOGETHER_MIN, TOGETHER_GROWTH = 64, 4
"""Records tried together: at least TOGETHER_MIN, and TOGETHER_GROWTH times as many as could be the last time."""
SINGLES = 8
"""Number of records to read one by one after some could not be read together."""
SHARE_MAX = 8
"""If SERIES_MIN records take at most this part of a window, and its end cuts them off, they are read again with what
follows."""

Read = Callable[[int, int], bytes]
"""(size, at) -> bytes; fewer than `size` only at the end."""
Decrypt = Callable[[Record], Record | None]
"""Returns the record with its body as it was appended; None if that is not what was encrypted."""


class Found(NamedTuple):
    """A valid record."""

    at: int
    record: Record

    @property
    def position(self) -> int:
        return self.record.position

    @property
    def end(self) -> int:
        return self.at + self.record.header.total_bytes


class Damaged(NamedTuple):
    """Bytes [`at`, `end`) are not valid records, but once were some, or were written to become some."""

    at: int
    end: int


def scan(
    read: Read, start: int, end: int, *, seed: int, floor: int = 0, ceiling: int = POSITION_MAX,
    window_bytes: int = WINDOW_BYTES, data_end: int = POSITION_MAX, decrypt: Decrypt | None = None,
) -> Iterator[Found | Damaged]:  # fmt: skip
    """Yield all records in bytes [start, end) of a segment, and the damage between them, in order.

    Ends after a seal. Zeros after the last record are ignored; anything else there is Damaged.

    Args:
        seed: `store_seed` of this store.
        floor: the lowest log position that may come.
        ceiling: the lowest log position that may not come: the first of the next segment.
        data_end: from this byte on, a window of zeros has only zeros behind it.
        decrypt: for encrypted records; without it, records are read without looking whether they are encrypted.
    Raises:
        NewerFormat: a valid record of a later version.
        StoreKeyMissing: a record is encrypted, and there is no `decrypt`.
    """
    window = _Window(read, end, window_bytes, data_end, decrypt)
    found = _scan(window, start, seed, floor, ceiling, together=False)
    return cast("Iterator[Found | Damaged]", found)


def scan_together(
    read: Read, start: int, end: int, *, seed: int, floor: int = 0, ceiling: int = POSITION_MAX,
    window_bytes: int = WINDOW_BYTES, data_end: int = POSITION_MAX, decrypt: Decrypt | None = None,
) -> Iterator[Found | Damaged | Series]:  # fmt: skip
    """As `scan`, but yield records that can be read together as one series."""
    window = _Window(read, end, window_bytes, data_end, decrypt)
    return _scan(window, start, seed, floor, ceiling, together=True)


def _scan(
    window: _Window, start: int, seed: int, floor: int, ceiling: int, *, together: bool
) -> Iterator[Found | Damaged | Series]:
    at, new, decrypt = start, tuple.__new__, window.decrypt
    read_one = read_record if decrypt is None else _decrypting(decrypt)
    while True:
        # The usual case first: a valid record right here, which is entirely in the window.
        record = read_one(window.data, window.view, at - window.base, seed)
        if record is not None and floor <= record[0].position < ceiling:
            found: Found = new(Found, (at, record))
        else:
            searched = _next_record(window, at, seed, floor, ceiling)
            if searched is None:
                break
            found, record = searched, searched.record
            if found.at > at:
                yield Damaged(at, found.at)
        header = record[0]
        if together and (series := window.series(found[0], header, ceiling)) is not None:
            yield series
            at, floor = series.end_at, header.position + series.count
            continue
        yield found
        at, floor = found[0] + header.total_bytes, header.position + 1
        if header.kind == SEAL_KIND:
            return
    if window.dirty_end > at:
        yield Damaged(at, window.dirty_end)


def _decrypting(decrypt: Decrypt) -> Callable[[bytes, memoryview, int, int], Record | None]:
    """Return a function like `read_record` that also reads encrypted records."""

    def read(buffer: bytes, view: memoryview, at: int, seed: int) -> Record | None:
        record = read_record(buffer, view, at, seed, encrypted=True)
        if record is None or not record[0].flags & ENCRYPTED:
            return record
        return decrypt(record)

    return read


def _next_record(window: _Window, at: int, seed: int, floor: int, ceiling: int) -> Found | None:
    """Return the first valid record that begins at byte `at` or later."""
    while (candidate := window.find_magic(at)) is not None:
        header = window.header(candidate, seed)
        if header is None or header.position < floor or header.next_position > ceiling:
            at = candidate + ALIGNMENT
        else:
            record = window.record(candidate, header)
            if record is not None:
                return Found(candidate, record)
            at = candidate + header.total_bytes  # A valid header tells where the next one is.
        window.dirty_end = min(at, window.end)
    return None


class _Window:
    """The part of a segment that is in memory."""

    def __init__(
        self, read: Read, end: int, window_bytes: int, data_end: int, decrypt: Decrypt | None
    ) -> None:
        self._read, self._window_bytes, self._data_end = read, window_bytes, data_end
        self.decrypt = decrypt
        self.data, self.base = b"", 0
        self.view = memoryview(self.data)
        self.words = Words(self.data)
        """The same data as words, once `series` has needed them."""
        self.end = end
        self.dirty_end = 0
        """The byte behind the last nonzero byte that was searched and belongs to no record."""
        self._together, self._singles_left = TOGETHER_MIN, 0

    def _load(self, at: int, size_bytes: int) -> int | None:
        """Load `size_bytes` from byte `at` on; return their index in `data`, or None if they reach past the end."""
        index = at - self.base
        if index < 0 or index + size_bytes > len(self.data):
            if at + size_bytes > self.end:
                return None
            self._read_from(at, max(size_bytes, self._window_bytes))
            index = 0
        return index if index + size_bytes <= len(self.data) else None

    def _read_from(self, at: int, size_bytes: int) -> None:
        self.data, self.base = self._read(min(size_bytes, self.end - at), at), at
        self.view = memoryview(self.data)

    @property
    def loaded_end(self) -> int:
        return self.base + len(self.data)

    def find_magic(self, at: int) -> int | None:
        """Return the next byte from `at` on, at a multiple of 8, that begins with the magic; None if there is none."""
        while at < self.end:
            start = self._load(at, min(HEADER_BYTES, self.end - at))
            if start is None:
                return None
            at = max(at + ALIGNMENT, self.loaded_end // ALIGNMENT * ALIGNMENT)
            # Compare with zeros first, which is ten times faster than a search in them; only once per window.
            if start == 0 and self.data == (
                ZEROS if len(self.data) == WINDOW_BYTES else bytes(len(self.data))
            ):
                if at >= self._data_end:
                    return None
                continue
            index = start - 1
            while (index := self.data.find(MAGIC, index + 1)) >= 0:
                if index % ALIGNMENT == 0:  # `base` is a multiple of ALIGNMENT.
                    return self.base + index
            self.dirty_end = max(self.dirty_end, self.base + len(self.data.rstrip(b"\0")))
        return None

    def header(self, at: int, seed: int) -> Header | None:
        index = self._load(at, HEADER_BYTES)
        return None if index is None else read_header(self.data, index, seed)

    def record(self, at: int, header: Header) -> Record | None:
        index = self._load(at, header.total_bytes)
        if index is None or not body_is_intact(self.data, index, header):
            return None
        end = index + header.total_bytes
        record = Record(header, self.view[index + HEADER_BYTES : end])
        if not header.encrypted:
            return record
        if self.decrypt is None:
            raise StoreKeyMissing(f"the record at log position {header.position} is encrypted")
        return self.decrypt(record)

    def series(self, at: int, header: Header, ceiling: int) -> Series | None:
        """Return the valid record at byte `at` with those behind it that can be read together with it, or None."""
        if self._singles_left:
            self._singles_left -= 1
            return None
        some_bytes = SERIES_MIN * header.total_bytes
        if some_bytes > self._window_bytes:
            return None  # A window has fewer, and a large record should not be copied just to find that out.
        cut_off = self.loaded_end < min(at + some_bytes, self.end)
        if cut_off and SHARE_MAX * some_bytes <= self._window_bytes:
            self._read_from(at, self._window_bytes)
        if self.words.data is not self.data:
            self.words = Words(self.data)
        wanted = min(self._together, ceiling - header.position)
        series = find_series(self.words, (at - self.base) // WORD_BYTES, self.base, wanted)
        if series is None:
            self._singles_left, self._together = SINGLES, TOGETHER_MIN
        else:
            self._together = max(TOGETHER_MIN, TOGETHER_GROWTH * series.count)
        return series
