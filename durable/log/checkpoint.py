"""A checkpoint file: the state at some log position, so that recovery need not read all records before.

Layout, little endian, version 1 (pinned by tests/golden/checkpoint-v1.hex, version 3 by checkpoint-v3.hex):

    at  size  field
     0     4  magic "MCKP"
     4     1  version: 1; 2 when the payload is encrypted; 3 and 4, for `enq` only: the same with a copy of
              the payload of `ack` behind its own, and the copy's length in bytes, u32
     5     1  kind: 1 enq, 2 ack, 3 root
     6     2  0
     8     4  CRC-32 of bytes [0, 8) and [12, end)
    12     4  payload length in bytes; the file ends with it
    16    16  store id
    32    20  SHA-1 of the queue's name; root: 0
    52     4  pair: CRC-32 of the payload of `enq`, in both files of a queue; root: how many bytes of
              marks (see sparse_index.py) its payload begins with
    56     8  log position: enq and ack hold the effects of all records before it; root: that of the
              snapshot
    64     8  lane: an id of the queue that no other queue of this name ever had; root: the log position
              from which records have to be read
    72        payload, whose meaning is the broker's. Encrypted as bodies are, see cipher.py; the associated
              data is this header without checksum, length and pair

A file that is invalid in any way is treated as missing.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum
from hashlib import sha1
from typing import NamedTuple

from .checksum import crc32
from .record import Buffer

MAGIC = b"MCKP"
VERSION, ENCRYPTED_VERSION = 1, 2
WITH_ACK = 2
"""Added to the version of an `enq` that has a copy of `ack`."""
COPY_LENGTH = struct.Struct("<I")
HEADER = struct.Struct("<4sBBHII16s20sIQQ")
HEADER_BYTES = HEADER.size
CHECKSUM_AT, CHECKED_FROM = 8, 12
NO_DIGEST = bytes(20)


class FileKind(IntEnum):
    ENQ = 1
    ACK = 2
    ROOT = 3


class Unusable(Enum):
    """Why a file is treated as missing."""

    MISSING = "missing"
    UNREADABLE = "not readable"
    DAMAGED = "damaged"
    NEWER = "of a later version"
    FOREIGN = "of another store"
    OTHER = "of another queue, or of an earlier queue of this name"
    MIXED = "enq and ack were not written together"
    AHEAD = "of a log position beyond the end of the log"
    ENCRYPTED = "not encrypted with the key of this store"


class CheckpointFile(NamedTuple):
    """One file, decoded and intact."""

    kind: FileKind
    store_id: bytes
    digest: bytes
    pair: int
    position: int
    lane: int
    payload: Buffer
    encrypted: bool = False
    with_ack: bool = False
    """For `enq`: the payload was made by `join_ack`."""

    @property
    def version(self) -> int:
        return (ENCRYPTED_VERSION if self.encrypted else VERSION) + WITH_ACK * self.with_ack

    @property
    def associated_data(self) -> bytes:
        """The associated data of the payload when it is encrypted."""
        return HEADER.pack(
            MAGIC, self._replace(encrypted=True).version, self.kind, 0, 0, 0, self.store_id,
            self.digest, 0, self.position, self.lane,
        )  # fmt: skip


def join_ack(enq: Buffer, ack: Buffer) -> bytes:
    """Return the payload of an `enq` that has a copy of `ack`."""
    return b"".join((enq, ack, COPY_LENGTH.pack(len(ack))))


def split_ack(payload: Buffer) -> tuple[Buffer, Buffer]:
    """Return the two arguments of `join_ack`. For other bytes the result is meaningless, but nothing is raised."""
    view = memoryview(payload)
    end = len(view) - COPY_LENGTH.size
    copy_at = max(0, end - int.from_bytes(view[max(0, end) :], "little"))
    return view[:copy_at], view[copy_at : max(0, end)]


def directory_name(name: str) -> str:
    """Return the name of the directory of a queue or vhost: the SHA-1 of its name, because 40 hex digits are valid on
    every file system, whatever the name. No security depends on it."""
    return sha1(name.encode(), usedforsecurity=False).hexdigest()


def encode_checkpoint(file: CheckpointFile) -> list[Buffer]:
    """Return the file in pieces, to be written one after the other; the payload is not copied."""
    kind, store_id, digest, pair, position, lane, payload, _, _ = file
    header = HEADER.pack(
        MAGIC, file.version, kind, 0, 0, len(payload), store_id, digest, pair, position, lane
    )
    checksum = crc32(payload, crc32(header[CHECKED_FROM:], crc32(header[:CHECKSUM_AT])))
    checked = header[:CHECKSUM_AT] + struct.pack("<I", checksum) + header[CHECKED_FROM:]
    return [checked, payload]


def decode_checkpoint(data: bytes) -> CheckpointFile | Unusable:
    """Decode the bytes of a file. Of the reasons in Unusable, it finds only MISSING, DAMAGED and NEWER."""
    if not data:
        return Unusable.MISSING
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        return Unusable.DAMAGED
    _, version, kind, _, checksum, size, store, digest, pair, position, lane = HEADER.unpack_from(
        data
    )
    rest = memoryview(data)[CHECKED_FROM:]
    if crc32(rest, crc32(data[:CHECKSUM_AT])) != checksum:
        return Unusable.DAMAGED
    with_ack = version > ENCRYPTED_VERSION
    if version > ENCRYPTED_VERSION + WITH_ACK * (kind == FileKind.ENQ):
        return Unusable.NEWER
    if size != len(data) - HEADER_BYTES or kind not in iter(FileKind):
        return Unusable.DAMAGED
    return CheckpointFile(
        FileKind(kind), store, digest, pair, position, lane, data[HEADER_BYTES:],
        encrypted=version - WITH_ACK * with_ack == ENCRYPTED_VERSION, with_ack=with_ack,
    )  # fmt: skip
