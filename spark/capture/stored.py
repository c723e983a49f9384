"""One vhost's log as it is in its directory, while a broker may be writing it.

    msgs.3  | ... seal |  msgs.4  | ... seal |  msgs.5  | ...... | last commit | 0 0 0
      complete: read once                           │            │            └ `end`
                                                    └ the next `refresh` continues here
                                                                 └ `synced_end`: known from the log itself

Call `refresh` again to see what was written since; complete segments are not read a second time. Nothing is
changed, and nothing is locked. What is behind `synced_end` is valid, but a power cut could still take it
away: `sync` puts it on stable storage, as a broker's own recovery does before it relies on what it found.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from durable.errors import RecordDamaged
from durable.log.bodies import SEAL_BYTES, decode_definitions
from durable.log.checkpoints import END_UNKNOWN, Checkpoints
from durable.log.header import FIRST_NUMBER, SEGMENT_HEADER_BYTES, SegmentHeader, segment_name
from durable.log.identity import Identity, identify
from durable.log.read_only_disk import ReadOnlyDisk
from durable.log.real_disk import RealFile
from durable.log.record import (
    CHECKED_BYTES,
    CHECKSUM,
    FIRST_POSITION,
    HEADER_BYTES,
    SEAL_KIND,
    Record,
    read_header,
    read_record,
    store_seed,
)
from durable.log.scan import Damaged

from ..errors import NoCapture, SegmentUnreadable
from .contents import Contents, LaneSpan, Mark, MovedRuns, RecordDigest, concat_runs
from .decryption import DEFAULT_KEY_FILES, Decryption, KeyFiles
from .gather import Ints, Numbers
from .lanes import Lane, Lanes
from .walk import SEARCH_BYTES, ZEROS, walk

FRONT_BYTES = SEGMENT_HEADER_BYTES + 4096
ATTEMPTS = 10
"""Attempts at listing a directory from which a broker frees segments meanwhile."""


@contextmanager
def segment_file(path: str) -> Iterator[RealFile]:
    """Open a segment for reading in the block, where nothing but calls of the file may raise OSError.

    Raises:
        FileNotFoundError: it has been freed.
        PermissionError: this user may not read it.
        SegmentUnreadable: the disk does not return it, now or in the block, or it is not a file.
    """
    try:
        # With O_NONBLOCK, opening a FIFO waits for nobody.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with closing(RealFile(descriptor)) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SegmentUnreadable(path, "Not a regular file")
            yield file
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise SegmentUnreadable(path, error.strerror or str(error)) from None


class StoredLog:
    """The log of one vhost. `contents` has its segments that hold something, in order."""

    def __init__(self, path: Path, keys: KeyFiles = DEFAULT_KEY_FILES) -> None:
        self.path, self._keys = path, keys
        self._decryption = Decryption(path, keys)
        self.contents: list[Contents] = []
        self.seed, self.digest = 0, ""
        """`digest` tells this store from others, and does not reveal the store id."""
        self._store_id = b""
        self._lanes: Lanes | None = None

    @property
    def start(self) -> int:
        """The first log position that may exist."""
        return self.contents[0].first if self.contents else FIRST_POSITION

    @property
    def end(self) -> int:
        """The log position after the last valid record."""
        return self.contents[-1].end if self.contents else FIRST_POSITION

    @property
    def synced_end(self) -> int:
        """Everything before this log position is on stable storage, according to the log itself."""
        if not self.contents:
            return FIRST_POSITION
        # A broker begins a segment only when the one before is on stable storage.
        last = self.contents[-1]
        return max(last.first, min(last.synced_end, last.end))

    def decrypt(self, record: Record) -> Record | None:
        """As `Decryption.decrypt`."""
        return self._decryption.decrypt(record)

    def segment_path(self, number: int) -> str:
        return str(self.path / segment_name(number))

    def refresh(self) -> None:
        """Read what has been written since, and forget what has been freed.

        Raises:
            NoCapture: there was never a store here.
            ForeignStore, NewerFormat: it is something else, or of a later release.
            StoreKeyMissing, StoreKeyWrong, KeysUnusable: it is encrypted, see decryption.py.
        """
        for _ in range(ATTEMPTS):
            with suppress(FileNotFoundError):
                return self._refresh()
        raise NoCapture(
            str(self.path), f"segments vanished {ATTEMPTS} times while they were listed"
        )

    def _refresh(self) -> None:
        disk = ReadOnlyDisk(self.path, unlocked=True)
        identity = _identify(disk, self.path)
        self._use_store(identity.store_id)
        used = self._used_segments(identity.headers)
        known = self._reusable_contents({number for number, _ in used})
        contents: list[Contents] = []
        for number, header in used:
            one = known.get(number)
            if one is None:
                expected = contents[-1].end if contents else FIRST_POSITION
                one = Contents(number, expected if header is None else header.first)
            if not one.complete:
                had_marks = bool(one.marks)
                self._read_new(one, closed=number != used[-1][0])
                if header is None and not had_marks:
                    _correct_first(one, contents)
            contents.append(one)
        for earlier, later in pairwise(contents):
            earlier.next_first = later.first
            if later.number == earlier.number + 1:
                earlier.successor_first = _first_position(later, identity.headers[later.number])
        self.contents, self._lanes = contents, None

    def _use_store(self, store_id: bytes) -> None:
        """Forget everything if this is another store than before."""
        digest = _digest(store_id)
        if digest != self.digest:
            self.contents, self.digest, self._store_id = [], digest, store_id
            self.seed = store_seed(store_id)
            self._decryption = Decryption(self.path, self._keys, store_id)

    def _used_segments(
        self, headers: dict[int, SegmentHeader | None]
    ) -> list[tuple[int, SegmentHeader | None]]:
        """Return the segments that hold something, or did before they were damaged."""
        used = [*headers.items()]
        while used and used[-1][1] is None and not self._has_data(used[-1][0]):
            used.pop()
        return used

    def _has_data(self, number: int) -> bool:
        """Return whether a segment without a valid header holds anything. Only the first refresh searches beyond its
        front, because every refresh checks the segment ahead, which holds nothing."""
        with self._segment_file(number) as file:
            end = (
                FRONT_BYTES
                if self.contents
                else _data_end(file, none_if_unknown=True) or SEARCH_BYTES
            )
            pieces = (
                file.pread(min(SEARCH_BYTES, end - at), at) for at in range(0, end, SEARCH_BYTES)
            )
            return any(piece != ZEROS[: len(piece)] for piece in pieces)

    def _reusable_contents(self, numbers: set[int]) -> dict[int, Contents]:
        """Return what earlier refreshes saw of these segments and is still there: all up to a record that is unchanged.

        Records change if an older copy of the directory was put back, or if a power cut on another machine took
        away what was not synced and had been seen here. Other records are then written in their place.
        """
        known: dict[int, Contents] = {}
        unchanged = False
        for one in reversed(self.contents):
            if one.number in numbers:
                unchanged = unchanged or self._is_unchanged(one)
                if unchanged or not one.last_at:
                    known[one.number] = one
        return known

    def _is_unchanged(self, one: Contents) -> bool:
        """Return whether its last record is unchanged, and thereby all before it, which its checksum covers."""
        if not one.last_at:
            return False
        with self._segment_file(one.number) as file:
            return file.pread(CHECKSUM.size, one.last_at + CHECKED_BYTES) == CHECKSUM.pack(
                one.chain
            )

    def _read_new(self, one: Contents, *, closed: bool) -> None:
        with self._segment_file(one.number) as file:
            data_end = None if closed else _data_end(file, none_if_unknown=one.last_at > 0)
            for found in walk(
                file.pread, one.end_at, file.size_bytes, seed=self.seed, floor=one.end,
                closed=closed, decrypt=self.decrypt, data_end=data_end,
            ):  # fmt: skip
                one.add(found)
            if data_end is not None and data_end - one.end_at > SEARCH_BYTES:
                # Otherwise zeros that were read ahead would be searched each time.
                file.forget_read(one.end_at)
            one.cut = closed and not _is_end_intact(file, one)
        one.complete |= closed

    def _segment_file(self, number: int) -> AbstractContextManager[RealFile]:
        return segment_file(self.segment_path(number))

    def sync(self) -> bool:
        """Put everything that was seen on stable storage; False if this file system does not allow it."""
        if not self.contents:
            return True
        try:
            with self._segment_file(self.contents[-1].number) as file:
                file.fdatasync()
        except (OSError, SegmentUnreadable):
            return False
        return True

    def last_before(self, position: int) -> RecordDigest | None:
        """Return the last record before this log position. Reads the block that it is in."""
        for one in reversed(self.contents):
            for mark in reversed(one.marks):
                if mark.position < position and (found := self._last_record(one, mark, position)):
                    return found
        return None

    def _last_record(self, one: Contents, mark: Mark, position: int) -> RecordDigest | None:
        with self._segment_file(one.number) as file:
            data = file.pread(mark.end_at - mark.at, mark.at)
        found: RecordDigest | None = None
        at = 0
        while (header := read_header(data, at, self.seed)) and header.position < position:
            if header.kind != SEAL_KIND:
                hashed = self._store_id + data[at : at + HEADER_BYTES]
                found = RecordDigest(header.position, _digest(hashed))
            at += header.total_bytes
        return found

    def spans(self) -> dict[int, LaneSpan]:
        """Return what the log holds of each lane. If it holds nothing, the lane ends where the last snapshot says."""
        found = self._lane_spans()
        for lane, end in self._declared_lanes().next_offsets.items():
            span = found.setdefault(lane, LaneSpan(end, end, 0))
            span.end = max(span.end, end)
        return found

    def _lane_spans(self) -> dict[int, LaneSpan]:
        found: dict[int, LaneSpan] = {}
        for contents in self.contents:
            for spans in (contents.lanes, contents.moved_lanes):
                for lane, span in spans.items():
                    if lane in found:
                        found[lane].widen(span.first, span.end, span.messages)
                    else:
                        found[lane] = replace(span)
        return found

    def lanes(self) -> dict[int, Lane]:
        """Return all declared lanes by lane id."""
        return self._declared_lanes().all()

    def _declared_lanes(self) -> Lanes:
        if self._lanes is None:
            disk = ReadOnlyDisk(self.path, unlocked=True)
            cipher = self._decryption.cipher()
            root = Checkpoints(disk, self._store_id, lambda: END_UNKNOWN, cipher).read_root()
            # The snapshot repeats everything that was declared before it.
            lanes, lossy = self._lanes_from(0 if root is None else root.snapshot)
            if root is not None and not lanes.has_snapshot:
                lanes, lossy = self._lanes_from(0)
            if lossy:
                lanes.adopt(self._lane_spans())
            self._lanes = lanes
        return self._lanes

    def _lanes_from(self, position: int) -> tuple[Lanes, bool]:
        """Apply all definitions from this log position on. Return the lanes, and whether definitions may be missing."""
        lanes, lossy = Lanes(), False
        for one in self.contents:
            if one.original_end <= position:
                continue
            lossy |= one.lossy
            with self._segment_file(one.number) as file:
                for found, at, end_at in one.definitions:
                    if found >= position:
                        lossy |= not self._apply(lanes, found, file.pread(end_at - at, at))
        return lanes, lossy

    def _apply(self, lanes: Lanes, position: int, data: bytes) -> bool:
        """Apply a record of definitions; return whether it could be read."""
        view = memoryview(data)
        record = read_record(data, view, 0, self.seed, encrypted=True)
        record = record and self.decrypt(record)
        if record is None:
            return False
        try:
            for change in decode_definitions(record):
                with suppress(LookupError, TypeError, ValueError):
                    lanes.apply(change, position)
        except RecordDamaged:
            return False
        return True

    def position_at(self, time_us: int) -> int:
        """Return the first log position, by origin, of messages stored at this time or later."""
        carried = self.carried()
        late: list[int] = carried.origin[carried.time_us >= time_us][:1].tolist()
        return min(self._original_position_at(time_us), *late, self.end)

    def _original_position_at(self, time_us: int) -> int:
        for one in self.contents:
            for mark in one.marks:
                if mark.time_low_us <= mark.time_high_us and mark.time_high_us >= time_us:
                    return self._position_at(one, mark, time_us)
        return self.end

    def _position_at(self, one: Contents, mark: Mark, time_us: int) -> int:
        with self._segment_file(one.number) as file:
            for found in walk(
                file.pread, mark.at, mark.end_at, seed=self.seed, floor=0, closed=True,
                decrypt=self.decrypt,
            ):  # fmt: skip
                if not isinstance(found, Damaged):
                    late = (found.time_us >= time_us) & (found.messages > 0)
                    late &= found.origin == found.position
                    if late.any():
                        return int(found.position[np.argmax(late)])
        return mark.position

    def absent(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return log positions of [start, end) whose segments are not there."""
        gone: list[tuple[int, int]] = []
        for first, after in [*self._extents(), (end, end)]:
            if start < min(first, end):
                gone.append((start, min(first, end)))
            start = max(start, after)
        return gone

    def _extents(self) -> list[tuple[int, int]]:
        """Return each segment's log positions, including those cut off from it, which are reported as damage."""
        return [(one.first, max(one.end, one.successor_first)) for one in self.contents]

    def carried(self) -> MovedRuns:
        """Return runs that exist only in moved records, each once, in the order that they had first.

        Compaction carries records forward before it frees their segments, and may do so again. While the
        original is there it counts, and after that the copy that was made first.
        """
        runs = concat_runs([runs for one in self.contents for runs in one.moved])
        if not len(runs.origin):
            return runs
        runs = runs.pick(np.flatnonzero(~self._has_original(runs.origin)))
        order = np.lexsort((runs.position, runs.lane, runs.origin))
        runs = runs.pick(order)
        repeated = (runs.origin[1:] == runs.origin[:-1]) & (runs.lane[1:] == runs.lane[:-1])
        begins = np.flatnonzero(np.append(True, ~repeated)[: len(runs.origin)])
        first = np.repeat(runs.position[begins], np.diff(np.append(begins, len(runs.origin))))
        return runs.pick(np.flatnonzero(runs.position == first))

    def _has_original(self, position: Ints) -> Numbers:
        # `end` and not `successor_first`: what was cut off may have been carried forward before.
        extents = [(one.first, one.end) for one in self.contents]
        firsts, ends = np.array(extents, np.int64).reshape(-1, 2).T
        index = np.searchsorted(firsts, position, "right") - 1
        found: Numbers = (index >= 0) & (position < ends[np.maximum(index, 0)])
        return found


def _correct_first(one: Contents, earlier: Sequence[Contents]) -> None:
    """Take the position of its first record as that of a segment without a header, unless it certainly begins where
    the one before ends."""
    if one.marks and not _is_contiguous(one, earlier):
        one.first = one.marks[0].position


def _is_contiguous(one: Contents, earlier: Sequence[Contents]) -> bool:
    """Return whether it certainly begins where the one before ends: none in between was freed, and none was cut."""
    if not earlier:
        return one.number == FIRST_NUMBER
    return earlier[-1].sealed and earlier[-1].number == one.number - 1


def _is_end_intact(file: RealFile, one: Contents) -> bool:
    """Return whether a closed segment may hold everything that was written to it, judging by its end: a seal, or too
    little room for one, because recovery had cut the segment and found no space to lengthen it again."""
    if one.sealed:
        return True
    rest = file.pread(SEAL_BYTES, one.end_at)
    return bool(one.marks) and len(rest) < SEAL_BYTES and not any(rest)


def _first_position(one: Contents, header: SegmentHeader | None) -> int:
    """Return the log position with which a segment began; 0 if that cannot be told.

    A segment is begun when all of the one before is on stable storage. So whatever is missing in that one by
    then will not appear later, even while a broker is writing.
    """
    if header is not None:
        return header.first
    front = one.marks[0] if one.marks else None
    return front.position if front and front.at == SEGMENT_HEADER_BYTES else 0


def _data_end(file: RealFile, *, none_if_unknown: bool) -> int | None:
    """Return the byte from which on nothing was ever written. If the file system does not tell: None
    with `none_if_unknown`, and otherwise the file's size, so that all of it is looked at once.

    Call this before reading anything: reading turns allocated space into data.
    """
    end = file.data_end()
    return None if none_if_unknown and end == file.size_bytes else end


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def _identify(disk: ReadOnlyDisk, path: Path) -> Identity:
    if not path.is_dir():
        raise NoCapture(str(path), "no such directory")
    identity = identify(disk, new_store_id=bytes(16), now_us=0)
    if identity.formatted:
        raise NoCapture(str(path), "no broker has stored anything here")
    return identity
