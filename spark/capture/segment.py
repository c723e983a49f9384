"""The records of a range of a segment, verified, some megabytes at a time.

    | record | record | record ~~~~ record | record |
      Chunk ──────────┘ Damaged      Chunk ─────────┘

A chunk is one piece of memory in which headers and bodies stand; nothing is copied out of it here. If
some of its bodies are encrypted, all of them stand decrypted in a piece of their own.
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
    TARGET_BYTES,
    VERSION_MAX,
    WHOLE_HEADER,
    Buffer,
    Header,
    Kind,
    Record,
)
from durable.log.scan import Damaged, Decrypt, Found, scan

from ..errors import DataLost, in_a_line
from .fields import field
from .gather import Bytes, Ints
from .groups import ungrouped
from .plan import ByteRange

WINDOW_BYTES = 4 << 20
"""Read at a time: a multiple of what a batch of rows takes, and little beside a worker's memory."""


class Chunk(NamedTuple):
    """Batches of one range, in order."""

    headers: bytes
    at: Ints
    """Where the headers of their records begin, in `headers`."""
    bodies: bytes
    """The same as `headers` unless some were encrypted."""
    body_at: Ints
    body_end: Ints
    before: Ints
    """Messages of its record that come before the batch."""
    segment_at: int
    """What stands at byte 0 of `headers` stands there in the segment."""


class _Window:
    """Remembers what was read last: found records stand in it."""

    def __init__(self, file: File) -> None:
        self._file, self.at = file, 0

    def read(self, size_bytes: int, at: int) -> bytes:
        self.at = at
        return self._file.pread(size_bytes, at)


def chunks(
    file: File, wanted: ByteRange, decrypt: Decrypt, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Chunk | Damaged]:
    """All records of the range that hold messages, and the damage between them.

    Args:
        decrypt: for those that are encrypted; what it raises is raised.
    Raises:
        NewerFormat: a valid record of a later version.
        DataLost: it was cut since the range was planned.
    """
    window = _Window(file)
    kinds = frozenset({Kind.MOVED} if wanted.carried else {Kind.PUBLISH, Kind.CAPTURE})
    at, floor = wanted.at, 0
    while at < wanted.end_at:
        data = window.read(min(window_bytes, wanted.end_at - at), at)
        ats, size_bytes, floor = _usual(data, wanted, kinds, floor)
        if ats:
            yield from _decrypted(_chunk(data, ats, at), decrypt)
        at += size_bytes
        if size_bytes:
            continue
        # No valid record here, or one longer than a window: what else it may be, `scan` knows.
        found: Found | Damaged | None = None
        for found in scan(
            window.read, at, wanted.end_at, seed=wanted.seed, floor=floor, decrypt=as_written
        ):
            at = found.end
            if isinstance(found, Damaged):
                yield found
                continue
            header = found.record.header
            floor = header.position + 1
            if header.kind in kinds and wanted.start <= header.position < wanted.end:
                there = memoryview(found.record.contents).obj
                assert isinstance(there, bytes), "windows are read as bytes"
                yield from _decrypted(_chunk(there, [found.at - window.at], window.at), decrypt)
            break
        else:
            if found is None:  # Zeros, or the end of the file: it was cut, or is a spare again.
                raise DataLost(
                    f"{in_a_line(wanted.path)}: nothing stands from byte {at} on, where records "
                    "stood when this was planned"
                )
            return


def _usual(
    data: bytes, wanted: ByteRange, kinds: frozenset[int], floor: int
) -> tuple[list[int], int, int]:
    """Valid records one after the other from the front of `data` on.

    Where those begin that are wanted, how many bytes there were of all, and the least log position
    that may come then. It is what `scan` does for each, but for records of one message in a third
    of the time.
    """
    unpack, seed, view, size = WHOLE_HEADER.unpack_from, wanted.seed, memoryview(data), len(data)
    start, stop = wanted.start, wanted.end
    ats: list[int] = []
    at = 0
    while at + HEADER_BYTES <= size:
        fields = unpack(data, at)  # Those of a Header, of which none is made.
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
            ats.append(at)
        at, floor = end, position + 1
    return ats, at, floor


def _chunk(data: bytes, ats: list[int], base: int) -> Chunk:
    at = np.array(ats, np.int64)
    buffer = np.frombuffer(data, np.uint8)
    body = at + HEADER_BYTES + TARGET_BYTES * field(buffer, at, "target_count")
    end = body + field(buffer, at, "body_bytes")
    body += _origin_bytes(buffer, at)
    return Chunk(data, at, data, body, end, np.zeros_like(at), base)


def _decrypted(chunk: Chunk, decrypt: Decrypt) -> Iterator[Chunk | Damaged]:
    """The chunk, and what in it does not decrypt."""
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
    record, body_at, body_end, before = ungrouped(chunk.bodies, chunk.body_at, chunk.body_end)
    at = chunk.at[record]
    return chunk._replace(at=at, body_at=body_at, body_end=body_end, before=before)


def _origin_bytes(buffer: Bytes, at: Ints) -> Ints:
    """What stands before the batch in the body of each record."""
    moved = field(buffer, at, "kind") == Kind.MOVED
    return np.where(moved, ORIGIN.size, 0)
