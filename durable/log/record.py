"""A record: what the log is made of, as bytes on the disk.

Layout, little endian, version 1 (pinned by tests/golden/record-v1.hex). Records stand back to back at
multiples of 8, from the segment header on:

    at  size  field
     0     4  magic "MREC"
     4     1  version: 1; 2 when the body is encrypted, 3 when it is a group, 4 when that is spread, 5 when of
           some messages nothing is left, so that older software says that it is too old
     5     1  kind: 1 publish, 2 acks, 3 definitions, 4 moved, 5 seal, 6 gap,
           7 capture
     6     2  flags: 1 the body is encrypted, see cipher.py (pinned by record-v2.hex); 2 it is a group, or
           was one before it was encrypted or moved, see vhost/groups.py (pinned by record-v3.hex); 4 it is
           a spread one (pinned by record-v4.hex); 8 compaction has cut messages out of it, which are
           settled, see vhost/cutting.py (pinned by record-v5.hex)
     8     4  total length in bytes: this header, targets, body and zeros up to a multiple of 8
    12     4  body length in bytes, as it stands here
    16     4  count of targets
    20     4  CRC-32 of bytes [64, total)
    24     4  chain: the header checksum of the record before; 0 before the first of all
    28     4  unsynced: so many records right before this one were not known to be on stable storage
              when this one was written
    32     8  epoch: of the leader who wrote it; rises by one at each start
    40     8  log position; a seal has that of the next record, all others count up by one
    48     8  time in us since 1970, when it was appended; a moved record keeps the one it had
    56     4  0
    60     4  header checksum: CRC-32 of bytes [0, 60), started from CRC-32 of the store id
    64        targets: `count` pairs of u64: queue id, sequence of the first message in that queue;
              body (see bodies.py); zeros

The header checksum covers the body by way of the body's. Two of them, because a good header says
where the next record is however damaged its body; and because the header's cannot be forged by
whoever sends payloads: it takes the store id, which never leaves the broker. So a search for the
magic after damage finds records and nothing else, without reading a body twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ..errors import NewerFormat
from .checksum import crc32

MAGIC = b"MREC"
VERSION, ENCRYPTED_VERSION, GROUPED_VERSION, SPREAD_VERSION, CUT_VERSION = 1, 2, 3, 4, 5
VERSION_MAX = CUT_VERSION
ENCRYPTED, GROUPED, SPREAD, CUT = 1, 2, 4, 8
"""Flags."""
_VERSIONS = (
    VERSION, ENCRYPTED_VERSION, *[GROUPED_VERSION] * 2, *[SPREAD_VERSION] * 4, *[CUT_VERSION] * 8
)  # fmt: skip
"""By flags."""
HEADER = struct.Struct("<4sBBHIIIIIIQQQI")
CHECKSUM = struct.Struct("<I")
WHOLE_HEADER = struct.Struct(HEADER.format + "I")
CHECKED_BYTES = HEADER.size
HEADER_BYTES = WHOLE_HEADER.size
TARGET = struct.Struct("<QQ")
TARGET_BYTES = TARGET.size
ALIGNMENT = 8
UNSYNCED_MAX = 2**32 - 1
ZEROS = bytes(ALIGNMENT)

FIRST_POSITION = 1
"""Log position 0 is nobody's, so it can stand for nothing."""

Buffer = bytes | memoryview


class Kind(IntEnum):
    PUBLISH = 1
    ACKS = 2
    DEFINITIONS = 3
    MOVED = 4
    SEAL = 5
    GAP = 6
    CAPTURE = 7


PUBLISH_KIND, SEAL_KIND = int(Kind.PUBLISH), int(Kind.SEAL)
"""For loops over records: `Kind.SEAL` is a call in Python 3.11, as dear as a checksum."""


class Target(NamedTuple):
    """A queue that a record was routed to."""

    queue: int
    first: int
    """Sequence of the record's first message in that queue."""


class Draft(NamedTuple):
    """A record before it has a place in the log."""

    kind: int
    """A Kind, or what it was in another log."""
    body: Buffer
    targets: Sequence[Target] = ()
    time_us: int = 0
    encrypted: bool = False
    """Whether the body is ciphertext."""
    grouped: bool = False
    """Whether the body is a group, or was one before it was encrypted or moved."""
    spread: bool = False
    """Whether that group is a spread one."""
    patient: bool = False
    """It can wait for room: the reserve is not for it, whatever its kind."""
    snapshot: bool = False
    """It is of a snapshot, for which the end of the reserve is kept."""
    cut: bool = False
    """Whether messages of that group were cut out of it."""

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk."""
        size = HEADER_BYTES + TARGET.size * len(self.targets) + len(self.body)
        return size + -size % ALIGNMENT


class Header(NamedTuple):
    """What stands at the front of a record, in the order of the bytes."""

    magic: bytes
    version: int
    kind: int
    flags: int
    total_bytes: int
    body_bytes: int
    target_count: int
    body_checksum: int
    chain: int
    unsynced: int
    epoch: int
    position: int
    time_us: int
    zero: int
    checksum: int

    @property
    def encrypted(self) -> bool:
        return bool(self.flags & ENCRYPTED)

    @property
    def grouped(self) -> bool:
        return bool(self.flags & GROUPED)

    @property
    def spread(self) -> bool:
        return bool(self.flags & SPREAD)

    @property
    def cut(self) -> bool:
        return bool(self.flags & CUT)

    @property
    def next_position(self) -> int:
        return self.position + (self.kind != SEAL_KIND)

    @property
    def synced_end(self) -> int:
        """All before this log position was on stable storage when the record was written."""
        return self.position - self.unsynced


class Record(NamedTuple):
    """A record as read, checked."""

    header: Header
    contents: Buffer
    """Targets, body and padding: bytes [64, total); once decrypted, targets and body."""

    @property
    def position(self) -> int:
        return self.header.position

    @property
    def kind(self) -> int:
        """A Kind, or one that this version does not know."""
        return self.header.kind

    @property
    def targets(self) -> tuple[Target, ...]:
        end = TARGET.size * self.header.target_count
        return tuple(Target(*pair) for pair in TARGET.iter_unpack(self.contents[:end]))

    @property
    def body(self) -> Buffer:
        """As it was appended, not copied."""
        start = TARGET.size * self.header.target_count
        return self.contents[start : start + self.header.body_bytes]


def store_seed(store_id: bytes) -> int:
    """What header checksums of this store start from."""
    return crc32(store_id)


def encode_record(
    draft: Draft, *, seed: int, epoch: int, position: int, chain: int, unsynced: int
) -> tuple[list[Buffer], int]:
    """The record in pieces to be written one after the other, and its header checksum."""
    size = draft.size_bytes
    targets = b"".join([TARGET.pack(*target) for target in draft.targets])
    body = draft.body
    padding = ZEROS[: -(len(targets) + len(body)) % ALIGNMENT]
    flags = ENCRYPTED * draft.encrypted + GROUPED * draft.grouped + SPREAD * draft.spread
    flags += CUT * draft.cut
    header = HEADER.pack(
        MAGIC, _VERSIONS[flags], draft.kind, flags, size, len(body), len(draft.targets),
        crc32(padding, crc32(body, crc32(targets))), chain, min(unsynced, UNSYNCED_MAX), epoch,
        position, draft.time_us, 0,
    )  # fmt: skip
    checksum = crc32(header, seed)
    pieces: list[Buffer] = [header + CHECKSUM.pack(checksum) + targets, body]
    if padding:
        pieces.append(padding)
    return pieces, checksum


def read_header(buffer: Buffer, at: int, seed: int) -> Header | None:
    """The header at `buffer[at:]`; None when there is no valid one.

    Raises:
        NewerFormat: the header is valid and of a later version.
    """
    if len(buffer) - at < HEADER_BYTES or buffer[at : at + 4] != MAGIC:
        return None
    header = Header._make(WHOLE_HEADER.unpack_from(buffer, at))
    if crc32(buffer[at : at + CHECKED_BYTES], seed) != header.checksum:
        return None
    if header.version > VERSION_MAX:
        raise NewerFormat("a record", header.version, VERSION_MAX)
    size = HEADER_BYTES + TARGET.size * header.target_count + header.body_bytes
    return header if header.total_bytes == size + -size % ALIGNMENT else None


def body_is_intact(buffer: Buffer, at: int, header: Header) -> bool:
    """Whether all of the record at `buffer[at:]` is there and as it was written."""
    end = at + header.total_bytes
    if end > len(buffer):
        return False
    return crc32(memoryview(buffer)[at + HEADER_BYTES : end]) == header.body_checksum


def read_record(
    buffer: Buffer, view: memoryview, at: int, seed: int, *,
    unpack: Callable[[Buffer, int], tuple[Any, ...]] = WHOLE_HEADER.unpack_from,
    new: Callable[[Any, tuple[Any, ...]], Any] = tuple.__new__, encrypted: bool = False,
) -> Record | None:  # fmt: skip
    """The record at `buffer[at:]` if all of it is there, valid, and of a version that is known.

    `read_header` and `body_is_intact` in one, without what they do only to tell cases apart: recovery
    comes here once per record. None means: ask them.

    Args:
        view: of all of `buffer`.
        unpack, new: bound when this is defined; a named tuple's own `__new__` takes twice as long.
        encrypted: whether the body may be.
    """
    if len(buffer) - at < HEADER_BYTES:
        return None
    fields = unpack(buffer, at)
    start = at + HEADER_BYTES
    end = at + fields[4]
    if (
        fields[14] != crc32(buffer[at : at + CHECKED_BYTES], seed)
        or fields[0] != MAGIC
        or fields[1] > VERSION_MAX
        or (fields[3] & ENCRYPTED and not encrypted)
        or not start <= end <= len(buffer)
        or fields[4] != (HEADER_BYTES + TARGET_BYTES * fields[6] + fields[5] + 7 & ~7)
    ):
        return None
    contents = view[start:end]
    if crc32(contents) != fields[7]:
        return None
    record: Record = new(Record, (new(Header, fields), contents))
    return record
