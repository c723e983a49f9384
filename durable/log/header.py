"""Which store a file belongs to, as bytes: the file `store`, and the header of each segment.

Layouts, little endian, version 1 (pinned by tests/golden/store-v1.hex and segment-v1.hex).

The file `store`, written once, when the directory is formatted:

    at  size  field
     0     8  magic "MESHSTOR"
     8     4  format version, 1
    12     4  CRC-32 of bytes [0, 12) and [16, 40)
    16    16  store id: random
    32     8  time in us since 1970

The header of a segment `msgs.NNNNNNNNNN`, written together with its first records:

     0     8  magic "MESHSEGM"
     8     4  format version, 1
    12     4  CRC-32 of bytes [0, 12) and [16, 64)
    16    16  store id
    32     8  segment number, as in the file's name
    40     8  log position of the first record
    48     4  chain at its start: header checksum of the record before
    52     4  size of the file in bytes: a shorter one has been cut
    56     8  time in us since 1970

A header of zeros belongs to a segment that was made ahead and is not used yet. Recovery can do without any
header: the number is in the name, log positions are in the records, and one good copy of the store id is enough.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import NewerFormat
from .checksum import crc32
from .record import Buffer

FORMAT_VERSION = 1
STORE_NAME = "store"
STORE_MAGIC, SEGMENT_MAGIC = b"MESHSTOR", b"MESHSEGM"
STORE = struct.Struct("<8sII16sQ")
SEGMENT = struct.Struct("<8sII16sQQIIQ")
STORE_BYTES, SEGMENT_HEADER_BYTES = STORE.size, SEGMENT.size
VERSION_AT, CHECKSUM_AT, CHECKED_FROM = 8, 12, 16
FIRST_NUMBER = 1
SEGMENT_NAME = re.compile(r"msgs\.(\d{10,})")
SPARE_NAME = re.compile(r"spare\.(\d{10,})")


class SegmentHeader(NamedTuple):
    store_id: bytes
    number: int
    first: int
    chain: int
    size_bytes: int
    time_us: int


def segment_name(number: int) -> str:
    return f"msgs.{number:010d}"


def segment_number(name: str) -> int | None:
    """Return the number in a segment's name; None if `name` is not that of a segment."""
    matched = SEGMENT_NAME.fullmatch(name)
    return int(matched[1]) if matched else None


def spare_name(number: int) -> str:
    """Return the name of a spare, a file kept for acks on a full disk; its number has no meaning. 0: the carrier."""
    return f"spare.{number:010d}"


def spare_number(name: str) -> int | None:
    """Return the number in a spare's name; None if `name` is not that of a spare."""
    matched = SPARE_NAME.fullmatch(name)
    return int(matched[1]) if matched else None


def small_spare_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the spares among these names, without the carrier."""
    return list(filter(None, map(spare_number, names)))


def next_spare_number(names: Iterable[str]) -> int:
    """Return a number that no spare among these names has."""
    return max(small_spare_numbers(names), default=0) + 1


def damaged_name(number: int, at: int) -> str:
    """Return the name of the file that keeps the damaged bytes found at byte `at` of a segment."""
    return f"damaged.{number:010d}.{at}"


def encode_store(store_id: bytes, time_us: int) -> bytes:
    return _with_checksum(STORE.pack(STORE_MAGIC, FORMAT_VERSION, 0, store_id, time_us))


def decode_store(data: Buffer) -> bytes | None:
    """Return the store id; None if these bytes are not intact. Raises NewerFormat."""
    if not _is_intact(data, STORE_MAGIC, STORE_BYTES, STORE_NAME):
        return None
    store_id: bytes = STORE.unpack_from(data)[3]
    return store_id


def encode_segment_header(header: SegmentHeader) -> bytes:
    return _with_checksum(SEGMENT.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, *header))


def decode_segment_header(data: Buffer, name: str) -> SegmentHeader | None:
    """Return the header; None if these bytes are not intact, or were never written. Raises NewerFormat."""
    if not _is_intact(data, SEGMENT_MAGIC, SEGMENT_HEADER_BYTES, name):
        return None
    return SegmentHeader._make(SEGMENT.unpack_from(data)[3:])


def _with_checksum(data: bytes) -> bytes:
    checksum = crc32(data[CHECKED_FROM:], crc32(data[:CHECKSUM_AT]))
    return data[:CHECKSUM_AT] + struct.pack("<I", checksum) + data[CHECKED_FROM:]


def _is_intact(data: Buffer, magic: bytes, size: int, what: str) -> bool:
    if len(data) < size or data[:VERSION_AT] != magic:
        return False
    version, checksum = struct.unpack_from("<II", data, VERSION_AT)
    if crc32(data[CHECKED_FROM:size], crc32(data[:CHECKSUM_AT])) != checksum:
        return False
    if version > FORMAT_VERSION:
        # Later versions keep these fields and sizes. If one cannot, it changes the magic, and the file is foreign.
        raise NewerFormat(what, version, FORMAT_VERSION)
    return True
