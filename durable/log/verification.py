"""Reads and verifies the segments with which a store was found, from a log position on. Changes nothing.

Which records are valid: scan.py. Whether they follow each other as they were written: `Continuity` in report.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from ..errors import StoreKeyMissing
from .check import Check
from .disk import Disk, File
from .header import SEGMENT_HEADER_BYTES, SegmentHeader, segment_name
from .identity import Identity
from .record import FIRST_POSITION, HEADER_BYTES, SEAL_KIND, Buffer, Record, read_header, store_seed
from .report import Continuity
from .scan import POSITION_MAX, Damaged, Decrypt, Found, scan_together
from .segments import Segment
from .series import Series
from .sparse_index import MARK_WINDOW_BYTES, Mark, Marks, decode_marks

Visit = Callable[[Record | Series], object]
"""Called with what was read; a function of single records has to be wrapped by `one_by_one`."""


@dataclass(slots=True)
class FoundSegment:
    """One segment file as it was found."""

    segment: Segment
    disk: Disk
    header: SegmentHeader | None
    damaged: list[Damaged]
    records: int = 0
    _file: File | None = None

    @property
    def file(self) -> File:
        """The file, opened when it is needed and until `close`: a log may have more segments than there are
        descriptors."""
        if self._file is None:
            self._file = self.disk.open(segment_name(self.segment.number))
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def used(self) -> bool:
        return self.header is not None or self.records > 0

    def take_tail(self) -> Damaged | None:
        """Remove the damage behind the last record from the list, and return it, if there is any."""
        tail = self.damaged[-1] if self.damaged else None
        if tail is None or tail.at < self.segment.end_at:
            return None
        return self.damaged.pop()


class Verification:
    """Reads the segments of one store, once."""

    def __init__(
        self, disk: Disk, identity: Identity, start: int, marks: Buffer, *, visit_start: int,
        visit: Visit | None, decrypt: Decrypt | None, check: Check,
    ) -> None:  # fmt: skip
        """
        Args:
            start: the log position from which to read.
            marks: of the segment with `start`; if they are damaged, that segment is read from its front.
            visit_start: the log position from which to visit; records before it are only verified.
            decrypt: None: there is no key.
        """
        self._disk, self._headers, self._start = disk, identity.headers, start
        self._visit_start, self._visit = visit_start, visit or (lambda _: None)
        self._decrypt, self._check = decrypt, check
        self._marks = Marks()
        with suppress(ValueError):
            self._marks = decode_marks(marks)
        self._seed = store_seed(identity.store_id)
        self.continuity = Continuity()
        self.skipped: list[Segment] = []
        """Segments that end before `start`. They were not read."""
        self.bytes_read = 0

    def run(self) -> list[FoundSegment]:
        """Return the segments that were read, in order. Raises StoreKeyMissing."""
        return [self._scan(number, self._headers[number]) for number in self._to_scan()]

    def _to_scan(self) -> list[int]:
        """Return the numbers of the segments to read; those that end before `start` are `skipped`."""
        headers = list(self._headers.items())
        for (number, header), (_, after) in pairwise(headers):
            if header is None or after is None or after.first > self._start:
                break
            with closing(self._disk.open(segment_name(number))) as file:
                segment = Segment(number, header.first, file.size_bytes)
                self._check_first(file)
            segment.end = after.first
            segment.seal(segment.capacity_bytes)
            self.skipped.append(segment)
        return [number for number, _ in headers[len(self.skipped) :]]

    def _scan(self, number: int, header: SegmentHeader | None) -> FoundSegment:
        self._check()
        try:
            with closing(self._disk.open(segment_name(number))) as file:
                return self._scan_file(number, header, file)
        except OSError as error:  # The original error does not name the file.
            raise OSError(error.errno, error.strerror, segment_name(number)) from error

    def _scan_file(self, number: int, header: SegmentHeader | None, file: File) -> FoundSegment:
        continuity = self.continuity
        data_end = file.data_end()  # Before anything is read: read-ahead turns holes into data.
        continuity.begin_segment(number, header)
        segment = Segment(number, continuity.expected or FIRST_POSITION, file.size_bytes)
        one = FoundSegment(segment, self._disk, header, [])
        if header is None and any(file.pread(SEGMENT_HEADER_BYTES, 0)):
            one.damaged.append(Damaged(0, SEGMENT_HEADER_BYTES))
        findings = partial(
            scan_together, file.pread, end=file.size_bytes, seed=self._seed, data_end=data_end,
            floor=continuity.expected or 0, ceiling=self._ceiling(number), decrypt=self._decrypt,
        )  # fmt: skip
        begin = self._start_byte(segment, findings)
        if begin > SEGMENT_HEADER_BYTES:
            self._check_first(file)
        self._take(one, findings(begin))
        end = max([segment.end_at, *[part.end for part in one.damaged[-1:]]])
        self.bytes_read += end - begin
        file.forget_read(end)  # Otherwise the next start would search these zeros, too.
        return one

    def _check_first(self, file: File) -> None:
        """Check the first record of a segment that is not read from its front, for encryption without a key.

        Earlier versions left the checkpoint root unencrypted once encryption was switched off; then nothing else
        here shows that some records are encrypted. `refuse_encrypted` catches what this check does not see.

        Raises:
            StoreKeyMissing: the record is encrypted, and there is no key.
        """
        if self._decrypt is None:
            header = read_header(file.pread(HEADER_BYTES, SEGMENT_HEADER_BYTES), 0, self._seed)
            if header is not None and header.encrypted:
                raise StoreKeyMissing(f"the record at log position {header.position} is encrypted")

    def _start_byte(
        self, segment: Segment, findings: Callable[..., Iterator[Found | Damaged | Series]]
    ) -> int:
        """Return the byte to read from: the last mark before `start`, if the mark's record is there."""
        marks, front = self._marks, Mark(segment.first, SEGMENT_HEADER_BYTES)
        if marks.lookup(segment.first) != front:  # Marks of another segment, or none.
            return SEGMENT_HEADER_BYTES
        mark = marks.lookup(self._start)
        if mark is None or mark == front:
            return SEGMENT_HEADER_BYTES
        there = next(findings(mark.at, window_bytes=MARK_WINDOW_BYTES), None)
        if there is None or isinstance(there, Damaged) or (there.position, there.at) != mark:
            return SEGMENT_HEADER_BYTES
        segment.take_marks(marks)
        self.continuity.skip_to(mark.position)
        return mark.at

    def _take(self, one: FoundSegment, findings: Iterator[Found | Damaged | Series]) -> None:
        continuity, segment, start, visit = (
            self.continuity,
            one.segment,
            self._visit_start,
            self._visit,
        )
        for found in findings:
            if isinstance(found, Damaged):
                one.damaged.append(found)
                continue
            if isinstance(found, Series):
                self._take_series(one, found)
                continue
            at, record = found
            header = record[0]
            position = header.position
            if continuity.expected is None:
                segment.first = position
            continuity.add_record(header)
            one.records += 1
            if header.kind == SEAL_KIND:
                segment.seal(found.end)
                continue
            segment.note(position, at, at + header.total_bytes)
            if position >= start:
                visit(record)

    def _take_series(self, one: FoundSegment, series: Series) -> None:
        continuity, segment = self.continuity, one.segment
        if continuity.expected is None:
            segment.first = series.position
        continuity.add_series(series)
        one.records += series.count
        segment.note_series(series)
        skipped = max(0, self._visit_start - series.position)
        if skipped < series.count:
            self._visit(series.skip(skipped))

    def _ceiling(self, number: int) -> int:
        later = [h.first for n, h in self._headers.items() if n > number and h is not None]
        return min(later, default=POSITION_MAX)
