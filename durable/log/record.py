"""Records, the units of the log, as bytes on the disk.

Layout, little endian, version 1 (pinned by tests/golden/record-v1.hex). Records follow each other without
gaps, at multiples of 8, from the segment header on:

    at  size  field
     0     4  magic "MREC"
     4     1  version: 1; 2 when the body is encrypted, 3 when it is a group, 4 when that is spread, 5 when
           messages were cut out of it: older software then says that it is too old
     5     1  kind: 1 publish, 2 acks, 3 definitions, 4 moved, 5 seal, 6 gap,
           7 capture
     6     2  flags: 1 the body is encrypted, see cipher.py (pinned by record-v2.hex); 2 it is a group, or
           was one before it was encrypted or moved, see vhost/groups.py (pinned by record-v3.hex); 4 the
           group is spread (pinned by record-v4.hex); 8 compaction has cut messages out of it, which are
           settled, see vhost/cutting.py (pinned by record-v5.hex)
     8     4  total length in bytes: this header, targets, body and zeros up to a multiple of 8
    12     4  body length in bytes, as stored here
    16     4  count of targets
    20     4  CRC-32 of bytes [64, total)
    24     4  chain: the header checksum of the record before; 0 in the very first record
    28     4  unsynced: how many records right before this one were not known to be on stable storage
              when this one was written
    32     8  epoch of the leader that wrote it; rises by one at each start
    40     8  log position; a seal has that of the next record, all others count up by one
    48     8  time in us since 1970 when it was appended; a moved record keeps its first one
    56     4  0
    60     4  header checksum: CRC-32 of bytes [0, 60), started from CRC-32 of the store id
    64        targets: `count` pairs of u64: queue id, sequence of the first message in that queue;
              body (see bodies.py); zeros

The header checksum covers the body, because it covers the body's checksum. There are two checksums for two
reasons. A valid header tells where the next record is, however damaged its own body is. And a header checksum
cannot be forged by a client that sends payloads, because it starts from the store id, which never leaves the
broker. So after damage a search for the magic finds nothing but records, and need not read a body twice.
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
"""Log position 0 is never used, so it can stand for none."""

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
"""For loops over records: in Python 3.11 `Kind.SEAL` is a call, which costs as much as a checksum."""


class Target(NamedTuple):
    """A queue that a record was routed to."""

    queue: int
    first: int
    """Sequence of the record's first message in that queue."""


class Draft(NamedTuple):
    """A record that has no place in the log yet."""

    kind: int
    """A Kind, or the kind that a record had in another log."""
    body: Buffer
    targets: Sequence[Target] = ()
    time_us: int = 0
    encrypted: bool = False
    """Whether the body is ciphertext."""
    grouped: bool = False
    """Whether the body is a group, or was one before it was encrypted or moved."""
    spread: bool = False
    """Whether that group is spread."""
    patient: bool = False
    """It can wait for room: it may not use the reserve, whatever its kind."""
    snapshot: bool = False
    """It is part of a snapshot: it may use the end of the reserve, which is kept for snapshots."""
    cut: bool = False
    """Whether messages were cut out of that group."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes on the disk."""
        size = HEADER_BYTES + TARGET.size * len(self.targets) + len(self.body)
        return size + -size % ALIGNMENT


class Header(NamedTuple):
    """The fields of a record's header, in the order of the bytes."""

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
        """All records before this log position were on stable storage when this one was written."""
        return self.position - self.unsynced


class Record(NamedTuple):
    """A record that was read and is valid."""

    header: Header
    contents: Buffer
    """Targets, body and padding: bytes [64, total). After decryption: targets and body only."""

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
        """The body as it was appended, not copied."""
        start = TARGET.size * self.header.target_count
        return self.contents[start : start + self.header.body_bytes]


def store_seed(store_id: bytes) -> int:
    """Return the CRC-32 from which the header checksums of this store start."""
    return crc32(store_id)


def encode_record(
    draft: Draft, *, seed: int, epoch: int, position: int, chain: int, unsynced: int
) -> tuple[list[Buffer], int]:
    """Return the record in pieces, to be written one after the other, and its header checksum."""
    targets = b"".join([TARGET.pack(*target) for target in draft.targets])
    body = draft.body
    padding = ZEROS[: -(len(targets) + len(body)) % ALIGNMENT]
    size = HEADER_BYTES + len(targets) + len(body) + len(padding)
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
    """Return the header at `buffer[at:]`; None if there is no valid one.

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
    """Return whether the record at `buffer[at:]` is complete, and has the body that was written."""
    end = at + header.total_bytes
    if end > len(buffer):
        return False
    return crc32(memoryview(buffer)[at + HEADER_BYTES : end]) == header.body_checksum


def read_record(
    buffer: Buffer, view: memoryview, at: int, seed: int, *,
    unpack: Callable[[Buffer, int], tuple[Any, ...]] = WHOLE_HEADER.unpack_from,
    new: Callable[[Any, tuple[Any, ...]], Any] = tuple.__new__, encrypted: bool = False,
) -> Record | None:  # fmt: skip
    """Return the record at `buffer[at:]` if it is complete, valid, and of a known version.

    Does the work of `read_header` and `body_is_intact` in one, without what they do only to tell cases apart,
    because recovery calls it once per record. If it returns None, those two tell why.

    Args:
        view: of all of `buffer`.
        unpack, new: bound at definition, for speed; a named tuple's own `__new__` takes twice as long.
        encrypted: whether encrypted records are returned, too.
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
