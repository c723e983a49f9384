"""Finding the valid records in the bytes of a segment, whatever else stands there.

    | record | record | ~~~~~~~~~~~~ | record | record | 0 0 0 0 |
      Found    Found      Damaged      Found    Found

What the bytes are read with is an argument: nothing here knows of files. After damage the search goes
on at every multiple of 8 where the magic stands; what is found there must be valid as a whole and
have a log position that can come next. See record.py for why payloads cannot pass for records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .record import (
    ALIGNMENT,
    HEADER_BYTES,
    MAGIC,
    Header,
    Kind,
    Record,
    body_is_intact,
    read_header,
)

WINDOW_BYTES = 1 << 20
"""Read at a time: large enough that calls do not count, small enough for the processor's cache."""
POSITION_MAX = 2**64 - 1
ZEROS = bytes(WINDOW_BYTES)

Read = Callable[[int, int], bytes]
"""(size, at) -> bytes, fewer only at the end."""


class Found(NamedTuple):
    """A valid record."""

    at: int
    record: Record

    @property
    def end(self) -> int:
        return self.at + self.record.header.total_bytes


class Damaged(NamedTuple):
    """Bytes [`at`, `end`) are no records, but once were, or were to become some."""

    at: int
    end: int


def scan(
    read: Read, start: int, end: int, *, seed: int, floor: int = 0, ceiling: int = POSITION_MAX,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Found | Damaged]:  # fmt: skip
    """All records in bytes [start, end) of a segment and the damage between them, in order.

    Ends after a seal. Zeros after the last record are nothing; anything else there is Damaged.

    Args:
        seed: `store_seed` of this store.
        floor: the least log position that may come.
        ceiling: the least that may not: where the next segment begins.
    Raises:
        NewerFormat: a valid record of a later version.
    """
    window = _Window(read, end, window_bytes)
    at = start
    while (found := _next_record(window, at, seed, floor, ceiling)) is not None:
        if found.at > at:
            yield Damaged(at, found.at)
        yield found
        header = found.record.header
        if header.kind == Kind.SEAL:
            return
        at, floor = found.end, header.next_position
    if window.dirty_end > at:
        yield Damaged(at, window.dirty_end)


def _next_record(window: _Window, at: int, seed: int, floor: int, ceiling: int) -> Found | None:
    """The first valid record that begins at byte `at` or later."""
    while (candidate := window.find_magic(at)) is not None:
        header = window.header(candidate, seed)
        if header is None or header.position < floor or header.next_position > ceiling:
            at = candidate + ALIGNMENT
        else:
            record = window.record(candidate, header)
            if record is not None:
                return Found(candidate, record)
            at = candidate + header.total_bytes  # A good header says where the next one is.
        window.dirty_end = min(at, window.end)
    return None


class _Window:
    """The part of a segment that is in memory."""

    def __init__(self, read: Read, end: int, window_bytes: int) -> None:
        self._read, self._window_bytes = read, window_bytes
        self._data, self._base = b"", 0
        self.end = end
        self.dirty_end = 0
        """Behind the last byte without a record that was searched and is not zero."""

    def _load(self, at: int, size_bytes: int) -> int | None:
        """Where in `_data` byte `at` stands, with so many from there on; None past the end."""
        index = at - self._base
        if index < 0 or index + size_bytes > len(self._data):
            if at + size_bytes > self.end:
                return None
            wanted = min(max(size_bytes, self._window_bytes), self.end - at)
            self._data, self._base, index = self._read(wanted, at), at, 0
        return index if index + size_bytes <= len(self._data) else None

    def find_magic(self, at: int) -> int | None:
        """Where the magic next stands at a multiple of 8."""
        while at < self.end:
            start = self._load(at, min(HEADER_BYTES, self.end - at))
            if start is None:
                return None
            index = start - 1
            while (index := self._data.find(MAGIC, index + 1)) >= 0:
                if index % ALIGNMENT == 0:  # `_base` is a multiple of it.
                    return self._base + index
            rest = self._data[start:]
            if rest != (ZEROS if len(rest) == WINDOW_BYTES else bytes(len(rest))):
                self.dirty_end = self._base + len(self._data.rstrip(b"\0"))
            at = max(at + ALIGNMENT, (self._base + len(self._data)) // ALIGNMENT * ALIGNMENT)
        return None

    def header(self, at: int, seed: int) -> Header | None:
        index = self._load(at, HEADER_BYTES)
        return None if index is None else read_header(self._data, index, seed)

    def record(self, at: int, header: Header) -> Record | None:
        index = self._load(at, header.total_bytes)
        if index is None or not body_is_intact(self._data, index, header):
            return None
        end = index + header.total_bytes
        return Record(header, memoryview(self._data)[index + HEADER_BYTES : end])
