"""Reads the records of a range of a segment, verified, some megabytes at a time.

    | record | record | record ~~~~ record | record |
      Chunk ──────────┘ Damaged      Chunk ─────────┘

A chunk is one piece of memory with headers and bodies; nothing is copied out of it here. If some of its
bodies are encrypted, all bodies are put decrypted into a piece of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from durable.log.bodies import ORIGIN
from durable.log.checksum import crc32
from durable.log.cipher import as_written
from durable.log.disk import File
from durable.log.record import (
    CHECKED_BYTES,
    ENCRYPTED,
    HEADER_BYTES,
    SEAL_KIND,
    TARGET_BYTES,
    VERSION_MAX,
    WHOLE_HEADER,
    Buffer,
    Header,
    Kind,
    Record,
    read_header,
)
from durable.log.scan import Damaged, Decrypt, Found, scan

from ..errors import DataLost, printable_path
from .fields import field
from .gather import Bytes, Ints
from .groups import ungrouped
from .plan import ByteRange

WINDOW_BYTES = 4 << 20
"""How much is read at a time: several times a batch of rows, and little compared to a worker's memory."""


class Chunk(NamedTuple):
    """The batches of one range, in order."""

    headers: bytes
    at: Ints
    """Where the headers of their records begin, in `headers`."""
    bodies: bytes
    """The same bytes as `headers`, unless some bodies were encrypted."""
    body_at: Ints
    body_end: Ints
    messages_before: Ints
    """How many messages of its record come before the batch."""
    segment_at: int
    """Where byte 0 of `headers` is in the segment."""


class _Window:
    """Remembers where the last read began: the contents of records found by `scan` are views of that read."""

    def __init__(self, file: File) -> None:
        self._file, self.at = file, 0

    def read(self, size_bytes: int, at: int) -> bytes:
        self.at = at
        return self._file.pread(size_bytes, at)


def chunks(
    file: File, wanted: ByteRange, decrypt: Decrypt, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Chunk | Damaged]:
    """Yield all records of the range that hold messages, and the damage among its log positions.

    Args:
        decrypt: for encrypted records; what it raises is raised.
    Raises:
        NewerFormat: a valid record of a later version.
        DataLost: the segment was cut since the range was planned.
    """
    window = _Window(file)
    kinds = frozenset({Kind.MOVED} if wanted.carried else {Kind.PUBLISH, Kind.CAPTURE})
    at, floor = wanted.at, wanted.floor
    while at < wanted.end_at:
        data = window.read(min(window_bytes, wanted.end_at - at), at)
        starts, size_bytes, floor = _scan_valid(data, wanted, kinds, floor)
        if starts:
            yield from _decrypted(_chunk(data, starts, at), decrypt)
        at += size_bytes
        if size_bytes:
            continue
        # There is no valid record here, or one longer than the window.
        damage, found = _find_record(window, wanted, at, floor)
        if (
            damage is not None
            and wanted.start <= _position(damage, found, file, wanted, floor) < wanted.end
        ):
            yield damage
        if found is None:
            if damage is None:  # Zeros, or the end of the file: it was cut, or is a spare again.
                raise DataLost(
                    f"{printable_path(wanted.path)}: there is nothing from byte {at} on, although there were "
                    "records when this was planned"
                )
            return
        at, floor, header = found.end, found.position + 1, found.record.header
        if header.kind in kinds and wanted.start <= header.position < wanted.end:
            window_data = memoryview(found.record.contents).obj
            assert isinstance(window_data, bytes), "windows are read as bytes"
            yield from _decrypted(_chunk(window_data, [found.at - window.at], window.at), decrypt)


def _find_record(
    window: _Window, wanted: ByteRange, at: int, floor: int
) -> tuple[Damaged | None, Found | None]:
    """Return the next record from byte `at` on, and the damage before it."""
    damage: Damaged | None = None
    for one in scan(
        window.read, at, wanted.end_at, seed=wanted.seed, floor=floor, decrypt=as_written
    ):
        if not isinstance(one, Damaged):
            return damage, one
        damage = one
    return damage, None


def _position(
    damage: Damaged, following: Found | None, file: File, wanted: ByteRange, floor: int
) -> int:
    """Return the log position at which damage counts, so that of several ranges that meet it one reports it: that of
    its first record, if its header is valid, or else of the record that follows it, or that is before it."""
    header = read_header(file.pread(HEADER_BYTES, damage.at), 0, wanted.seed)
    end = wanted.records_end if following is None else following.position
    # A disk may have put a record in another one's place: its header is valid, and its position a wrong one.
    if header is not None and header.position >= floor and _counted_at(header) < end:
        return _counted_at(header)
    if following is not None:
        return _counted_at(following.record.header)
    return max(floor - 1, wanted.first_origin)


def _counted_at(header: Header) -> int:
    # A seal has the position of the next record.
    return header.position - (header.kind == SEAL_KIND)


def _scan_valid(
    data: bytes, wanted: ByteRange, kinds: frozenset[int], floor: int
) -> tuple[list[int], int, int]:
    """Find consecutive valid records from the front of `data` on.

    Return where the wanted ones begin, how many bytes all of them take, and the lowest log position that
    may follow. `scan` would find the same, but takes three times as long for records of one message.
    """
    unpack, seed, view, size = WHOLE_HEADER.unpack_from, wanted.seed, memoryview(data), len(data)
    start, stop = wanted.start, wanted.end
    starts: list[int] = []
    at = 0
    while at + HEADER_BYTES <= size:
        fields = unpack(data, at)  # A Header's fields, without making one.
        end, position = at + fields[4], fields[11]
        body = at + HEADER_BYTES
        if (
            fields[14] != crc32(data[at : at + CHECKED_BYTES], seed)
            or not body <= end <= size
            or fields[1] > VERSION_MAX
            or position < floor
            or fields[7] != crc32(view[body:end])
        ):
            break
        if fields[2] in kinds and start <= position < stop:
            starts.append(at)
        at, floor = end, position + 1
    return starts, at, floor


def _chunk(data: bytes, starts: list[int], base: int) -> Chunk:
    at = np.array(starts, np.int64)
    buffer = np.frombuffer(data, np.uint8)
    body = at + HEADER_BYTES + TARGET_BYTES * field(buffer, at, "target_count")
    end = body + field(buffer, at, "body_bytes")
    body += _origin_bytes(buffer, at)
    return Chunk(data, at, data, body, end, np.zeros_like(at), base)


def _decrypted(chunk: Chunk, decrypt: Decrypt) -> Iterator[Chunk | Damaged]:
    """Yield the chunk with decrypted bodies, and as damage what does not decrypt."""
    buffer = np.frombuffer(chunk.headers, np.uint8)
    encrypted = (field(buffer, chunk.at, "flags") & ENCRYPTED).astype(bool)
    if not encrypted.any():
        yield _ungrouped(chunk)
        return
    view = memoryview(chunk.headers)
    bodies: list[Buffer] = []
    good: list[int] = []
    damaged: list[Damaged] = []
    for one, at in enumerate(chunk.at.tolist()):
        header = Header._make(WHOLE_HEADER.unpack_from(view, at))
        end = at + header.total_bytes
        record = Record(header, view[at + HEADER_BYTES : end])
        plain = decrypt(record) if encrypted[one] else record
        if plain is None:
            damaged.append(Damaged(chunk.segment_at + at, chunk.segment_at + end))
        else:
            good.append(one)
            bodies.append(plain.body)
    if good:
        which = np.array(good, np.int64)
        ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)))
        starts = np.append(0, ends[:-1]) + _origin_bytes(buffer, chunk.at[which])
        plain_chunk = chunk._replace(
            at=chunk.at[which], bodies=b"".join(bodies), body_at=starts, body_end=ends
        )
        yield _ungrouped(plain_chunk)
    yield from damaged


def _ungrouped(chunk: Chunk) -> Chunk:
    record, body_at, body_end, messages_before = ungrouped(
        chunk.bodies, chunk.body_at, chunk.body_end
    )
    at = chunk.at[record]
    return chunk._replace(
        at=at, body_at=body_at, body_end=body_end, messages_before=messages_before
    )


def _origin_bytes(buffer: Bytes, at: Ints) -> Ints:
    """Return how many bytes of each record's body come before the batch."""
    moved = field(buffer, at, "kind") == Kind.MOVED
    return np.where(moved, ORIGIN.size, 0)
