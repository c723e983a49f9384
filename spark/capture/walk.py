"""Walks over the headers of a segment without the bodies, with little more than one read for each.

    | header targets | body ...... | header targets | body ...... | 0 0 0
      Block ─────────────────────────┘ arrays over some thousand records

Plans are made from this. Bodies are verified where they are used, except in the segment that a broker is writing:
there they are verified here already, because a header may be on the disk without its body. The bodies of encrypted
messages are read, too: the number of messages is inside, and a body can only be decrypted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import numpy as np

from durable.log.bodies import EPOCH_BITS, ORIGIN
from durable.log.checksum import crc32
from durable.log.record import (
    ALIGNMENT,
    CHECKED_BYTES,
    CUT,
    ENCRYPTED,
    HEADER_BYTES,
    MAGIC,
    SEAL_KIND,
    TARGET_BYTES,
    VERSION_MAX,
    WHOLE_HEADER,
    Header,
    Kind,
    read_header,
    read_record,
)
from durable.log.scan import Damaged, Decrypt, Read
from durable.vhost.cutting import cut_ranges
from durable.vhost.groups import KIND_AT, read_front
from durable.vhost.groups import KINDS as GROUPS
from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import MESSAGES

from .fields import field
from .gather import Ints, Numbers, concat_ranges, numbers
from .spans import without

BLOCK_RECORDS = 4096
BLOCK_BYTES = 4 << 20
"""A block is at most this plus one record long: plans begin and end at blocks."""
WINDOW_BYTES = 256 << 10
LONG_BYTES, FRONT_BYTES = 16 << 10, 4 << 10
"""Of a record longer than LONG_BYTES, only FRONT_BYTES are read: the header and little else."""
SEARCH_BYTES = 1 << 20
ZEROS = bytes(SEARCH_BYTES)
TOTAL_AT, COUNT_AT, BATCH_FRONT_BYTES = 8, 16, 24
"""Offsets in a batch, and in a group of batches; see mesh/protocol/batch.py, durable/vhost/groups.py."""
MESSAGE_KINDS = (int(Kind.PUBLISH), int(Kind.CAPTURE), int(Kind.MOVED))
_BODY_FRONT_BYTES = ORIGIN.size + BATCH_FRONT_BYTES
Piece = tuple[int, int]
"""A range of a record's messages: the first one, and how many."""


class Block(NamedTuple):
    """Consecutive records: arrays with one item per record, and arrays with one item per run."""

    at: Ints
    end_at: int
    """The byte after the last record."""
    kind: Numbers
    position: Ints
    end: int
    """The log position after the last record."""
    chain: int
    """The header checksum of the last record."""
    synced_end: int
    """Everything before this log position was on stable storage when these records were written."""
    time_us: Ints
    origin: Ints
    """The log position that a moved record had first; a record's own if it was not moved."""
    messages: Ints
    """Number of messages; 0 if a record holds none."""
    run_record: Ints
    """Index into the arrays of records. A record that compaction has cut has a run for each piece that is left."""
    run_lane: Ints
    run_first: Ints
    run_messages: Ints


def walk(
    read: Read, start: int, end: int, *, seed: int, floor: int, closed: bool, decrypt: Decrypt,
    data_end: int | None = None,
) -> Iterator[Block | Damaged]:  # fmt: skip
    """Yield the records in bytes [start, end) of a segment, and damaged stretches between them.

    Args:
        floor: the lowest log position that may come.
        closed: nothing will be written to this segment any more. Otherwise what is not valid may be in
            the process of being written: the walk ends there, unless a later record says that this was on
            stable storage before. All bodies are then verified.
        decrypt: for encrypted messages; what it raises is raised.
        data_end: if the segment is not closed, only zeros had been written from this byte on before
            the walk began. None: that is not known, and 1 MiB of zeros is taken for the end.
    Raises:
        NewerFormat: a valid record of a later version.
    """
    return _Walk(read, end, seed, closed, decrypt, data_end).run(start, floor)


class _Walk:
    def __init__(
        self, read: Read, end: int, seed: int, closed: bool, decrypt: Decrypt, data_end: int | None
    ) -> None:
        self._read, self._end, self._seed, self._closed = read, end, seed, closed
        self._decrypt = decrypt
        self._data, self._base = b"", 0
        self._last_bytes = 0
        """How long the last record was: after a long one, little is read ahead."""
        self._data_end = end if closed or data_end is None else min(end, data_end)
        self._zeros_are_end = not closed and data_end is None
        self._dirty_end = 0
        """The byte after the last searched byte that is not zero."""
        self._reread_at = -1
        """A byte position that is known to have been on stable storage, and was therefore read a second time."""

    def run(self, at: int, floor: int) -> Iterator[Block | Damaged]:
        while at + HEADER_BYTES <= self._end:
            fronts, ats, end_at = self._valid_records(at, floor)
            if ats:
                block = _block(fronts, ats, end_at)
                yield block
                if block.kind[-1] == SEAL_KIND:
                    return
                at, floor = end_at, block.end
                continue
            following, dirty_end = self._find_next(at, floor)
            if dirty_end > at:
                yield Damaged(at, dirty_end if following is None else following)
            if following is None:
                return
            at = following

    def _valid_records(self, at: int, floor: int) -> tuple[list[bytes], list[int], int]:
        """Find consecutive valid records from byte `at` on, up to a seal or the size of a block.

        Return the front of each, where each begins, and where the last one ends.
        """
        # All in one loop: a call for each record would take longer than a checksum.
        seed, unpack = self._seed, WHOLE_HEADER.unpack_from
        kinds, many, full_at = frozenset(MESSAGE_KINDS), BLOCK_RECORDS, at + BLOCK_BYTES
        fronts: list[bytes] = []
        ats: list[int] = []
        total = self._last_bytes
        while at + HEADER_BYTES <= self._end and at < full_at:
            index = at - self._base
            if index < 0 or index + HEADER_BYTES > len(self._data):
                ahead = FRONT_BYTES if total > LONG_BYTES else WINDOW_BYTES
                index = self._load(at, HEADER_BYTES, ahead)
            data = self._data
            fields = unpack(data, index)  # A Header's fields, without making one.
            _, version, kind, flags, total, body_bytes, targets = fields[:7]
            if (
                fields[14] != crc32(data[index : index + CHECKED_BYTES], seed)
                or version > VERSION_MAX
                or flags & ENCRYPTED
                or fields[11] < floor
                or at + total > self._end
                or not (self._closed or self._is_body_intact(at, fields))
            ):
                front = self._encrypted_front(at, floor)
                if not front:
                    break
            else:
                size = HEADER_BYTES + TARGET_BYTES * targets
                if flags & CUT:
                    size = total
                elif kind in kinds and body_bytes >= _BODY_FRONT_BYTES:
                    size += _BODY_FRONT_BYTES
                if index + size > len(data):
                    index, data = self._load(at, size), self._data
                front = data[index : index + size]
            fronts.append(front)
            ats.append(at)
            at += total
            floor = fields[11] + 1
            if kind == SEAL_KIND or len(ats) == many:
                break
        self._last_bytes = total
        return fronts, ats, at

    def _load(self, at: int, size_bytes: int, ahead_bytes: int = 0) -> int:
        """Read so many bytes, and further ones as far as they have been written: reading allocated space that was
        not written would turn it into data. Return where byte `at` is in them, which is their front."""
        size_bytes = max(size_bytes, min(ahead_bytes, self._data_end - at))
        self._data, self._base = self._read(min(size_bytes, self._end - at), at), at
        if len(self._data) < HEADER_BYTES:  # The file has become shorter.
            self._data += bytes(HEADER_BYTES)
        return 0

    def _is_body_intact(self, at: int, fields: tuple[int, ...]) -> bool:
        index, size = at - self._base, fields[4]
        if index + size > len(self._data):
            index = self._load(at, size, WINDOW_BYTES)
        body = memoryview(self._data)[index + HEADER_BYTES : index + size]
        return crc32(body) == fields[7] and len(body) == size - HEADER_BYTES

    def _encrypted_front(self, at: int, floor: int) -> bytes:
        """Return the front of the encrypted record here, decrypted as far as it is needed; empty if there is none."""
        header = read_header(self._data, at - self._base, self._seed)
        if (
            header is None
            or not header.encrypted
            or header.position < floor
            or at + header.total_bytes > self._end
        ):
            return b""
        index = at - self._base
        if index + header.total_bytes > len(self._data):
            index = self._load(at, header.total_bytes, WINDOW_BYTES)
        record = read_record(self._data, memoryview(self._data), index, self._seed, encrypted=True)
        if record is not None and header.kind in MESSAGE_KINDS:
            record = self._decrypt(record)
        if record is None:
            return b""
        size = TARGET_BYTES * header.target_count
        if header.cut:
            size = len(record.contents)
        elif header.kind in MESSAGE_KINDS and record.header.body_bytes >= _BODY_FRONT_BYTES:
            size += _BODY_FRONT_BYTES
        return self._data[index : index + HEADER_BYTES] + bytes(record.contents[:size])

    def _find_next(self, at: int, floor: int) -> tuple[int | None, int]:
        """Find the next record after what is not valid at `at`. Return where it is, and where the invalid bytes end.

        None if there is no next record. If the second value is `at` itself, there is nothing here, or nothing
        yet, or it is to be read again.
        """
        front = self._read(HEADER_BYTES, at)
        header = read_header(front, 0, self._seed)
        good = header is not None and header.position >= floor
        candidate = at + (header.total_bytes if good and header is not None else ALIGNMENT)
        self._dirty_end = min(candidate, self._end) if any(front[:ALIGNMENT]) else at
        following: int | None = None
        for found, later in self._search(candidate, floor):
            following = found if following is None else following
            if self._closed:
                return following, following
            if later.synced_end > floor:
                break
        else:
            return None, self._dirty_end if self._closed else at
        if at != self._reread_at:
            # The bytes here, and the record behind that says so, may have been written between the two reads.
            self._reread_at, self._data = at, b""
            return at, at
        return following, following

    def _search(self, at: int, floor: int) -> Iterator[tuple[int, Header]]:
        """Yield valid headers from byte `at` on whose log position may come, each behind the record before it."""
        while at + HEADER_BYTES <= self._data_end:
            data = self._read(min(SEARCH_BYTES, self._data_end - at), at)
            following = at + max(0, len(data) - HEADER_BYTES) // ALIGNMENT * ALIGNMENT
            if data != ZEROS[: len(data)]:
                self._dirty_end = at + len(data.rstrip(b"\0"))
                index = data.find(MAGIC)
                while index >= 0:
                    header = (
                        read_header(data, index, self._seed) if index % ALIGNMENT == 0 else None
                    )
                    if header is not None and header.position >= floor:
                        yield at + index, header
                        following = max(following, at + index + header.total_bytes)
                        index += header.total_bytes - 1
                    index = data.find(MAGIC, index + 1)
            elif self._zeros_are_end:
                return
            if len(data) < HEADER_BYTES + ALIGNMENT:  # A file that was cut may end at any byte.
                return
            at = following


def _block(fronts: list[bytes], ats: list[int], end_at: int) -> Block:
    """Build a block from `fronts`, which hold as much of each record as is needed."""
    sizes = np.fromiter(map(len, fronts), np.int64, len(fronts))
    data = np.frombuffer(b"".join(fronts), np.uint8)
    at = np.cumsum(sizes) - sizes
    kind = field(data, at, "kind")
    targets = field(data, at, "target_count").astype(np.int64)
    unsynced = field(data, at, "unsynced").astype(np.int64)
    position = field(data, at, "position")
    body = at + HEADER_BYTES + TARGET_BYTES * targets
    moved = kind == Kind.MOVED
    origin = position.copy()
    origin[moved] = numbers(data, body[moved], "<i8")
    original_kind = np.zeros(len(at), np.int64)
    original_kind[moved] = numbers(data, body[moved] + 8, "<i8") >> EPOCH_BITS
    batch = body + np.where(moved, ORIGIN.size, 0)
    known = np.isin(kind, MESSAGE_KINDS) & (sizes > body - at)
    known &= np.isin(original_kind, (0, *MESSAGE_KINDS))
    messages = np.zeros(len(at), np.int64)
    messages[known] = numbers(data, batch[known] + COUNT_AT, "<u4")
    messages[known] *= np.isin(numbers(data, batch[known] + KIND_AT, "u1"), (MESSAGES, *GROUPS))
    targets[~known] = 0
    runs = np.repeat(np.arange(len(at)), targets)
    target_at = (
        at[runs] + HEADER_BYTES + TARGET_BYTES * concat_ranges(np.zeros_like(targets), targets)
    )
    cut = np.flatnonzero(known & (field(data, at, "flags") & CUT).astype(bool)).tolist()
    pieces_left: dict[int, list[Piece]] = {}
    for one in cut:
        with suppress(RemoteProtocolError):  # Reported when the record is read.
            pieces_left[one] = _pieces_left(data[batch[one] : at[one] + sizes[one]].tobytes())
    lane, first = numbers(data, target_at, "<i8"), numbers(data, target_at + 8, "<i8")
    run_messages = messages[runs]
    if pieces_left:
        run, start, run_messages = _split_runs(runs, messages, pieces_left)
        runs, lane, first = runs[run], lane[run], first[run] + start
    seal = int(kind[-1] == SEAL_KIND)
    return Block(
        np.array(ats, np.int64), end_at, kind, position, int(position[-1]) + 1 - seal,
        int(field(data, at[-1:], "checksum")[0]), int((position - unsynced).max()),
        field(data, at, "time_us"), origin, messages, runs, lane, first, run_messages,
    )  # fmt: skip


def _pieces_left(body: bytes) -> list[Piece]:
    """Return the pieces left of a group, which further bytes may follow. Raises RemoteProtocolError."""
    total = int.from_bytes(body[TOTAL_AT : TOTAL_AT + 4], "little")
    group = memoryview(body)[:total]
    full_span = [(0, read_front(group).messages)]
    return [(low, high - low) for low, high in without(full_span, cut_ranges(group))]


def _split_runs(
    runs: Ints, messages: Ints, pieces_left: Mapping[int, list[Piece]]
) -> tuple[Ints, Ints, Ints]:
    """Split runs into pieces. `pieces_left` has the pieces of records that were cut. Return for each piece its run,
    its first message and its number of messages."""
    pieces = [pieces_left.get(one, [(0, count)]) for one, count in enumerate(messages.tolist())]
    count = np.fromiter(map(len, pieces), np.int64, len(pieces))
    starts, counts = np.array([*chain(*pieces)], np.int64).reshape(-1, 2).T
    before = np.cumsum(count) - count
    which = np.repeat(before[runs], count[runs]) + concat_ranges(np.zeros_like(runs), count[runs])
    return np.repeat(np.arange(len(runs)), count[runs]), starts[which], counts[which]
