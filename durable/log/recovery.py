"""Opens a directory that a crash may have left in any state: valid records stay, and the rest is reported exactly.

    msgs.1   | header | record | record | seal |
    msgs.2   | header | record | ~~~~~~ | record | seal |     damage: a copy is kept, the gap reported
    msgs.3   | header | record | record | ~~~~ 0 0 0 |        torn tail: a copy is kept, then zeros
    msgs.4   | 0 0 0 0 |                                      made ahead, not used yet

Damage never prevents a store from opening. What was found is on stable storage before anything is written behind it:
after a SIGKILL some of it may be in the cache only. After a failed sync it may even be in the cache as if it had been
written, so the end of the log is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from ..errors import StoreKeyMissing
from .cipher import Cipher, as_written
from .config import LogConfig
from .damage import save_copy
from .disk import NO_SPACE, Disk, File, write_zeros
from .encryption import Encryption, ensure_cipher, read_cipher, refuse_encrypted
from .header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    next_spare_number,
    segment_name,
    small_spare_numbers,
    spare_name,
)
from .identity import Identity, identify
from .marks import MARK_WINDOW_BYTES, Mark, Marks, decode_marks
from .placing import WritePoint
from .record import FIRST_POSITION, HEADER_BYTES, SEAL_KIND, Buffer, Record, read_header, store_seed
from .report import Continuity, Damage, RecoveryReport, TornTail
from .scan import POSITION_MAX, WINDOW_BYTES, Damaged, Decrypt, Found, scan_together
from .segments import Segment, Segments
from .series import Series
from .spares import SPARES
from .store_keys import KEYS_NAME

Visit = Callable[[Record | Series], object]
"""Called with what was read; a function of single records has to be wrapped by `one_by_one`."""
Check = Callable[[], object]
"""Called during an opening; what it raises ends the opening, before anything has been changed."""


class StartPoint(NamedTuple):
    """What is known before anything is read."""

    start: int
    """The log position from which recovery has to read."""
    known_durable: range = range(0)
    """Log positions that were durable; from the first of them on nothing has been freed."""
    marks: Buffer = b""
    """Marks of the segment with `start`, from `Marks.encode`. Without them that segment is read from its front."""


FindStart = Callable[[bytes, Cipher | None], StartPoint]
"""Called with the store id and the cipher for checkpoints."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state from which a log continues."""

    segments: Segments
    write_point: WritePoint
    chain: int
    ahead_ready: bool
    report: RecoveryReport
    cipher: Cipher | None
    decrypt: Decrypt
    """For all records that are read from now on."""


@dataclass(slots=True)
class _Scanned:
    """One segment file as it was found."""

    segment: Segment
    disk: Disk
    header: SegmentHeader | None
    damaged: list[Damaged]
    records: int = 0
    _file: File | None = None

    @property
    def file(self) -> File:
        """The file, opened when it is needed and until `close`: a log may have more segments than there are descriptors."""
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


def recover(
    disk: Disk, config: LogConfig, *, new_store_id: bytes, now_us: int, clock: Callable[[], float],
    start: int | FindStart, visit: Visit | None, encryption: Encryption | None, check: Check,
) -> Recovered:  # fmt: skip
    """Read everything from log position `start` on, verify it, and prepare the end for writing.

    Args:
        disk: must be locked by the caller.
        visit: called with every valid record from `start` on, in order; some come together as a series.
        check: called before each segment; what it raises ends recovery, and nothing has been changed.
    Raises:
        ForeignStore, NewerFormat: the directory is not for us to change.
        StoreKeyMissing, StoreKeyWrong: it cannot be read without another key.
    """
    begun_s = clock()
    # glibc takes new pages for each block larger than any freed so far, as each window would be: so free one now.
    freed = bytes(2 * WINDOW_BYTES)
    del freed
    identity = identify(disk, new_store_id=new_store_id, now_us=now_us)
    cipher = read_cipher(disk, identity.store_id, encryption)
    begin = StartPoint(start) if isinstance(start, int) else start(identity.store_id, cipher)
    recovery = _Recovery(disk, config, identity, begin, visit, cipher, encryption, check)
    return recovery.run(lambda: clock() - begun_s)


class _Recovery:
    def __init__(
        self, disk: Disk, config: LogConfig, identity: Identity, begin: StartPoint, visit: Visit | None,
        cipher: Cipher | None, encryption: Encryption | None, check: Check,
    ) -> None:  # fmt: skip
        self._disk, self._config, self._identity = disk, config, identity
        self._check = check
        self._start, self._known_durable, marks = begin
        self._visit = visit or (lambda _: None)
        self._cipher, self._encryption = cipher, encryption
        self._decrypt: Decrypt | None = None if cipher is None else cipher.decrypt
        if encryption is not None and encryption.as_written:
            self._decrypt = as_written
        # A data key is to be made. If the store had one and lost the file, reading everything finds what is encrypted.
        self._reads_all = cipher is None and encryption is not None and encryption.wants_key
        self._marks = Marks()
        with suppress(ValueError):
            self._marks = decode_marks(b"" if self._reads_all else marks)
        self._seed = store_seed(identity.store_id)
        self._continuity = Continuity()
        self._segments = Segments()
        self._damage: list[Damage] = []
        self._bytes_read = 0

    def run(self, elapsed_s: Callable[[], float]) -> Recovered:
        headers = self._identity.headers
        try:
            scanned = [self._scan(number, headers[number]) for number in self._to_scan()]
        except StoreKeyMissing as error:
            what = f"the file {KEYS_NAME} in {self._disk.path} is gone, and {error.what}"
            raise StoreKeyMissing(what) from error
        cipher = ensure_cipher(
            self._disk, self._identity.store_id, self._cipher, self._encryption
        )  # Nothing was changed before this: what cannot be decrypted has been refused by now.
        ahead = []
        while scanned and not scanned[-1].used:
            ahead.append(scanned.pop())
        for one in scanned:
            self._segments.add(one.segment)
        for one in scanned[:-1]:
            one.segment.sealed = (
                True  # Also without a seal, which may be damaged: nothing more is written to it.
            )
        continuity = self._continuity
        found_end = continuity.expected or FIRST_POSITION
        continuity.finish(self._known_durable, self._segments.start or None)
        point, torn = self._prepare_end(scanned)
        for one in scanned[:-2]:
            self._save_damage(one)
            one.close()
        for one in scanned[-2:]:  # These stay open until they are stable.
            self._save_damage(one)
        ready = [one for one in ahead if self._make_ready(one, point.number + 1)]
        self._make_stable(scanned[-2:])
        for one in (*scanned, *ahead):
            one.close()
        report = RecoveryReport(
            store_id=self._identity.store_id, formatted=self._identity.formatted,
            start=self._segments.start or point.position, end=point.position, found_end=found_end,
            epoch=continuity.epoch + 1, segments=len(self._segments), records=continuity.records,
            bytes_read=self._bytes_read, seconds=elapsed_s(), gaps=tuple(continuity.gaps),
            absent=tuple(continuity.absent), damage=tuple(self._damage), torn=torn,
            encrypted=cipher is not None and cipher.encrypting,
        )  # fmt: skip
        decrypt = self._decrypt or (refuse_encrypted if cipher is None else cipher.decrypt)
        return Recovered(
            self._segments, point, continuity.chain or 0, bool(ready), report, cipher, decrypt
        )

    def _to_scan(self) -> list[int]:
        """Return the numbers of the segments to read; those that end before `start` are added without reading."""
        headers = list(self._identity.headers.items())
        if self._reads_all:
            return [number for number, _ in headers]
        skipped = 0
        for (number, header), (_, after) in pairwise(headers):
            if header is None or after is None or after.first > self._start:
                break
            with closing(self._disk.open(segment_name(number))) as file:
                segment = Segment(number, header.first, file.size_bytes)
                self._check_first(file)
            segment.end = after.first
            segment.seal(segment.capacity_bytes)
            self._segments.add(segment)
            skipped += 1
        return [number for number, _ in headers[skipped:]]

    def _scan(self, number: int, header: SegmentHeader | None) -> _Scanned:
        self._check()
        try:
            with closing(self._disk.open(segment_name(number))) as file:
                return self._scan_file(number, header, file)
        except OSError as error:  # The original error does not name the file.
            raise OSError(error.errno, error.strerror, segment_name(number)) from error

    def _scan_file(self, number: int, header: SegmentHeader | None, file: File) -> _Scanned:
        continuity = self._continuity
        data_end = file.data_end()  # Before anything is read: read-ahead turns holes into data.
        continuity.begin_segment(number, header)
        segment = Segment(number, continuity.expected or FIRST_POSITION, file.size_bytes)
        one = _Scanned(segment, self._disk, header, [])
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
        self._bytes_read += end - begin
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
        self._continuity.skip_to(mark.position)
        return mark.at

    def _take(self, one: _Scanned, findings: Iterator[Found | Damaged | Series]) -> None:
        continuity, segment, start, visit = self._continuity, one.segment, self._start, self._visit
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

    def _take_series(self, one: _Scanned, series: Series) -> None:
        continuity, segment = self._continuity, one.segment
        if continuity.expected is None:
            segment.first = series.position
        continuity.add_series(series)
        one.records += series.count
        segment.note_series(series)
        skipped = max(0, self._start - series.position)
        if skipped < series.count:
            self._visit(series.skip(skipped))

    def _ceiling(self, number: int) -> int:
        later = [h.first for n, h in self._identity.headers.items() if n > number and h is not None]
        return min(later, default=POSITION_MAX)

    def _prepare_end(self, scanned: list[_Scanned]) -> tuple[WritePoint, TornTail | None]:
        """Return where writing goes on, and what had to be cut for that."""
        position = self._continuity.expected or FIRST_POSITION
        if not scanned:
            last = self._segments.last
            return WritePoint(
                last.number if last else 0, position, 0, 0, position, sealed=True
            ), None
        segment = scanned[-1].segment
        if (
            segment.sealed
        ):  # A record follows a seal at once. If there is none, a commit was cut off.
            torn: TornTail | None = TornTail(segment.number + 1, 0, 0, 0, position, None)
        else:
            torn = self._cut_tail(scanned[-1], position)
        return WritePoint(
            segment.number, segment.first, segment.end_at, segment.capacity_bytes, position,
            sealed=segment.sealed,
        ), torn  # fmt: skip

    def _cut_tail(self, one: _Scanned, position: int) -> TornTail | None:
        """Clear what is behind its last record, and restore its size. Return what was there of a torn commit."""
        segment, file, torn = one.segment, one.file, None
        tail = one.take_tail() or Damaged(segment.end_at, segment.end_at)
        missing = max(0, one.header.size_bytes - file.size_bytes) if one.header else 0
        dirty = tail.end - tail.at
        if dirty or missing:
            kept_as = save_copy(self._disk, segment.number, file, tail.at, tail.end)
            torn = TornTail(segment.number, tail.at, dirty, missing, position, kept_as)
        if not self._clear(file, tail):
            file.truncate(tail.at)
        self._grow(one)
        segment.capacity_bytes = file.size_bytes
        return torn

    def _clear(self, file: File, part: Damaged) -> bool:
        """Write zeros in place, if possible: on a full disk, others would take the space that a cut gives back."""
        try:
            write_zeros(file, part.at, part.end)
        except OSError:
            return False
        return True

    def _grow(self, one: _Scanned) -> None:
        """Grow it to its full size, so that writing cannot fail for lack of space; without space it ends here."""
        size = one.header.size_bytes if one.header else self._config.segment_bytes
        if one.file.size_bytes >= size:
            return
        try:
            one.file.preallocate(size)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def _save_damage(self, one: _Scanned) -> None:
        for part in one.damaged:
            number = one.segment.number
            kept_as = save_copy(self._disk, number, one.file, part.at, part.end)
            self._damage.append(Damage(number, part.at, part.end, kept_as))

    def _make_ready(self, one: _Scanned, number: int) -> bool:
        """Return whether this unused segment can be the next one; if not, it is removed, or becomes a spare.

        If its first write was torn, it is filled with zeros again rather than removed: it may have been the carrier,
        or made while there was still space.
        """
        size, name = one.file.size_bytes, segment_name(one.segment.number)
        self._save_damage(one)
        fits = one.segment.number == number and size == self._config.segment_bytes
        if fits and self._refill_zeros(one):
            return True
        names = self._disk.names()
        if size >= self._config.segment_bytes or len(small_spare_numbers(names)) >= SPARES:
            self._disk.unlink(name)
        else:  # A spare that was about to become a segment. `Store` fills it with zeros before it does.
            self._disk.rename(name, spare_name(next_spare_number(names)))
        return False

    def _refill_zeros(self, one: _Scanned) -> bool:
        """Fill it with zeros again, on stable storage; return whether that worked. Torn bytes must not reappear behind
        records that are written later."""
        if not all(self._clear(one.file, part) for part in one.damaged):
            return False
        try:
            if one.damaged:
                one.file.fdatasync()
        except OSError:
            return False
        return True

    def _make_stable(self, scanned: list[_Scanned]) -> None:
        if scanned:
            self._write_again(scanned[-1])
        for one in scanned:
            one.file.fdatasync()
        self._disk.sync_directory()

    def _write_again(self, one: _Scanned) -> None:
        """Write again what no record proves to be synced: at most a commit, and only in the last segment, because the
        one before was synced first. After a failed sync the kernel takes such pages for clean, so no sync would write
        them. On a copy-on-write file system this may take space, and must fail if there is none."""
        segment, synced_end = one.segment, self._continuity.synced_end
        begin = 0 if synced_end <= segment.first else segment.lookup(synced_end)
        for at in range(begin, segment.end_at, WINDOW_BYTES):
            data = one.file.pread(min(WINDOW_BYTES, segment.end_at - at), at)
            one.file.pwritev([data], at)
