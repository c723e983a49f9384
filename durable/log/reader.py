"""Reads the log by log position while it is being written. Every record read is verified.

Calls block, and are safe in any thread. Records that are not durable yet do not exist for a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

from ..errors import NotInLog, RecordDamaged
from .disk import File
from .record import SEAL_KIND, Record
from .scan import Damaged, Decrypt, Found, scan
from .segments import Segment, Segments

READ_BYTES = 1 << 20
"""How much a caller that reads on and on should read per call in a worker thread."""
WINDOW_BYTES = 256 * 1024
"""Bytes read at a time where no mark says how far to read, and at least so far otherwise: most batches are smaller."""
AT_ONCE_BYTES = 16 << 20
"""If the next mark is farther, reading is window by window: there is damage, or a record that is read as a whole
anyway."""


class Reader:
    """The reader of one store. Its `end` arguments are always log positions before which everything is durable."""

    def __init__(
        self, segments: Segments, seed: int, file: Callable[[int], File], decrypt: Decrypt
    ) -> None:
        self._segments, self._seed, self._file = segments, seed, file
        self._decrypt = decrypt
        self._marking = Lock()

    def record(self, position: int, end: int) -> Record:
        """Return the record at this log position.

        Raises:
            NotInLog: it was freed, was never there, or is not durable yet.
            RecordDamaged: there is something in its place, but not what was written.
        """
        damaged = False
        for found in self._walk(position, end):
            if isinstance(found, Damaged):
                damaged = True
            elif found.record.position == position:
                return found.record
            else:
                break
        if damaged:
            raise RecordDamaged("record", position)
        raise NotInLog(position, self._segments.start, end)

    def records(self, position: int, end: int) -> Iterator[Record]:
        """Yield records from this log position up to `end`, in order; damaged ones are left out."""
        return _intact(self._walk(position, end))

    def _walk(self, position: int, end: int) -> Iterator[Found | Damaged]:
        """As `records`, but also yield the damage on the way."""
        segments = self._segments
        segment = segments.find(position) or next(iter(segments), None)
        while segment is not None and position < end:
            for found in self._scan(segment, position, end):
                yield found
                if isinstance(found, Found):
                    position = found.position + 1
            segment = segments.after(segment.number)

    def _scan(
        self, segment: Segment, position: int, end: int, until: int | None = None
    ) -> Iterator[Found | Damaged]:
        """Yield what is in this segment from this log position on, up to byte `until` if given. Yields nothing if the
        segment was freed in the meantime."""
        try:
            file = self._file(segment.number)
        except FileNotFoundError:
            return
        at, window_bytes = segment.lookup(position), WINDOW_BYTES
        if until is None:
            until = segment.end_at
        elif until - at <= AT_ONCE_BYTES:
            window_bytes = until - at  # A record cut off by a window's end would be read twice.
        for found in scan(
            file.pread, at, until, seed=self._seed, floor=segment.first, ceiling=end,
            window_bytes=window_bytes, decrypt=self._decrypt,
        ):  # fmt: skip
            if isinstance(found, Damaged):
                yield found
                continue
            header = found.record[0]
            if header.kind == SEAL_KIND:
                return
            if found.at >= segment.marks.next_at:
                self._mark(segment, header.position, found.at)
            if header.position >= position:
                yield found

    def _mark(self, segment: Segment, position: int, at: int) -> None:
        """Add a mark for a segment that recovery did not read, so that the next reader can begin closer."""
        if segment.sealed:  # Otherwise its writer makes the marks.
            with self._marking:
                segment.marks.add(position, at)

    def read_some(self, position: int, end: int, limit_bytes: int) -> list[Record]:
        """Return some of what `records` yields: `limit_bytes` of bodies at most, but one record if there is any."""
        segment = self._segments.find(position)
        size_bytes = max(limit_bytes, WINDOW_BYTES)
        if (
            segment is not None
            and (mark := segment.marks.read_end(position, size_bytes)) is not None
        ):
            there = self._scan(segment, position, end, mark.at)
            if taken := _within(_intact(there), limit_bytes):
                return taken
            position = mark.position  # Everything before the mark is damaged, or was freed.
        return _within(self.records(position, end), limit_bytes)


def _intact(walk: Iterator[Found | Damaged]) -> Iterator[Record]:
    return (found.record for found in walk if isinstance(found, Found))


def _within(records: Iterator[Record], limit_bytes: int) -> list[Record]:
    """Return records until their bodies exceed `limit_bytes`; the first one in any case."""
    taken: list[Record] = []
    size = 0
    for record in records:
        if taken and size + record.header.body_bytes > limit_bytes:
            break
        taken.append(record)
        size += record.header.body_bytes
    return taken
