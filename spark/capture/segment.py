"""The records of a range of a segment, verified, some megabytes at a time.

    | record | record | record ~~~~ record | record |
      Chunk ──────────┘ Damaged      Chunk ─────────┘

A chunk is one piece of memory in which headers and bodies stand; nothing is copied out of it here.
Bodies that are encrypted at rest would be opened here: a chunk says of headers and of bodies separately
where they are, so opened ones can stand in memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from durable.log.bodies import ORIGIN
from durable.log.disk import File
from durable.log.record import HEADER_BYTES, TARGET_BYTES, Kind
from durable.log.scan import Damaged, scan

from .gather import Ints, numbers
from .plan import Range

WINDOW_BYTES = 4 << 20
"""Read at a time: a multiple of what a batch of rows takes, and little beside a worker's memory."""


class Chunk(NamedTuple):
    """Records of one range, in order."""

    headers: bytes
    at: Ints
    """Where the records' headers begin, in `headers`."""
    bodies: bytes
    """The same as `headers` unless they were encrypted."""
    body_at: Ints
    body_end: Ints
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
    file: File, wanted: Range, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Chunk | Damaged]:
    """All records of the range that hold messages, and the damage between them.

    Raises:
        NewerFormat: a valid record of a later version.
    """
    window = _Window(file)
    kinds = {Kind.MOVED} if wanted.carried else {Kind.PUBLISH, Kind.CAPTURE}
    start, end = wanted.start, wanted.end
    ats: list[int] = []
    data: object = None
    base = 0
    for found in scan(
        window.read, wanted.at, wanted.end_at, seed=wanted.seed, window_bytes=window_bytes
    ):
        if isinstance(found, Damaged):
            if ats:
                yield _chunk(data, ats, base)
                ats = []
            yield found
            continue
        record = found.record
        header = record.header
        if header.position >= end:
            break
        if header.position < start or header.kind not in kinds:
            continue
        there = memoryview(record.contents).obj
        if there is not data:
            if ats:
                yield _chunk(data, ats, base)
                ats = []
            data, base = there, window.at
        ats.append(found.at - base)
    if ats:
        yield _chunk(data, ats, base)


def _chunk(data: object, ats: list[int], base: int) -> Chunk:
    assert isinstance(data, bytes), "windows are read as bytes"
    at = np.array(ats, np.int64)
    buffer = np.frombuffer(data, np.uint8)
    body = at + HEADER_BYTES + TARGET_BYTES * numbers(buffer, at + 16, "<u4")
    end = body + numbers(buffer, at + 12, "<u4")
    body += np.where(numbers(buffer, at + 5, "u1") == Kind.MOVED, ORIGIN.size, 0)
    return Chunk(data, at, data, body, end, base)
