"""Reading the log by position, while it is being written. Every record read is verified.

Blocking, and safe in any thread. What is not durable yet is not there for a reader.
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
"""In one trip to a worker thread, of whoever reads on and on."""
WINDOW_BYTES = 256 * 1024
"""Read at a time where no mark says how far to go, and else at least as far: most batches are smaller."""
AT_ONCE_BYTES = 16 << 20
"""What is further is read window by window: there is damage, or a record that is read as a whole anyway."""


class Reader:
    """Of one store; `end` is always the log position before which all is durable."""

    def __init__(
        self, segments: Segments, seed: int, file: Callable[[int], File], decrypt: Decrypt
    ) -> None:
        self._segments, self._seed, self._file = segments, seed, file
        self._decrypt = decrypt
        self._marking = Lock()

    def record(self, position: int, end: int) -> Record:
        """The record at this log position.

        Raises:
            NotInLog: it has been freed, never was there, or is not durable yet.
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
        """Records from this log position up to `end`, in order; damaged ones are left out."""
        return _intact(self._walk(position, end))

    def _walk(self, position: int, end: int) -> Iterator[Found | Damaged]:
        """As `records`, with the damage seen on the way."""
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
        """What there is in this segment from this log position on; `until`: before this byte. Nothing, where it
        has been freed meanwhile."""
        try:
            file = self._file(segment.number)
        except FileNotFoundError:
            return
        at, window_bytes = segment.near(position), WINDOW_BYTES
        if until is None:
            until = segment.end_at
        elif until - at <= AT_ONCE_BYTES:
            window_bytes = until - at  # Of a record that a read cuts off, all would be read again.
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
        """Recovery did not read this one; the next reader need not begin so far in front."""
        if segment.sealed:  # Else whoever writes it does that.
            with self._marking:
                segment.marks.add(position, at)

    def some(self, position: int, end: int, limit_bytes: int) -> list[Record]:
        """As `records`, some of those that come to `limit_bytes` of bodies; at least one if there is one."""
        segment = self._segments.find(position)
        size_bytes = max(limit_bytes, WINDOW_BYTES)
        if segment is not None and (mark := segment.marks.stop(position, size_bytes)) is not None:
            there = self._scan(segment, position, end, mark.at)
            if taken := _within(_intact(there), limit_bytes):
                return taken
            position = mark.position  # All before that is damaged, or freed.
        return _within(self.records(position, end), limit_bytes)


def _intact(walk: Iterator[Found | Damaged]) -> Iterator[Record]:
    return (found.record for found in walk if isinstance(found, Found))


def _within(records: Iterator[Record], limit_bytes: int) -> list[Record]:
    """Some, until they come to so many bytes of bodies; the first one whatever it takes."""
    taken: list[Record] = []
    size = 0
    for record in records:
        if taken and size + record.header.body_bytes > limit_bytes:
            break
        taken.append(record)
        size += record.header.body_bytes
    return taken
