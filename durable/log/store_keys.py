"""The file `keys`: the data key of an encrypted store, wrapped for each generation of a key pair.

Layout, little endian, version 1 (pinned by tests/golden/keys-v1.hex). The file holds the same 4096 bytes twice,
because without them the store is lost; one intact copy is enough:

    at  size  field
     0     8  magic "MESHKEYS"
     8     4  format version, 1
    12     4  CRC-32 of bytes [0, 12) and [16, 4096)
    16    16  store id
    32     1  length of the cluster's name
    33     1  count of entries
    34     6  0
    40    64  name of the cluster whose pairs these are, zeros
   104        entries of 80 bytes: key id (8 bytes), the data key wrapped for that pair with the store id
              as its context (72 bytes, see security/at_rest.py); zeros

The name tells a user who has a network secret, or many key pairs, which one is needed.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from security.at_rest import WRAPPED_BYTES

from ..errors import NewerFormat
from .checksum import crc32

KEYS_NAME = "keys"
MAGIC = b"MESHKEYS"
VERSION = 1
HEADER = struct.Struct("<8sII16sBB6x64s")
ENTRY = struct.Struct(f"<8s{WRAPPED_BYTES}s")
COPY_BYTES, COPIES = 4096, 2
FILE_BYTES = COPY_BYTES * COPIES
CHECKSUM_AT, CHECKED_FROM = 12, 16
ENTRIES_MAX = (COPY_BYTES - HEADER.size) // ENTRY.size


class StoreKeys(NamedTuple):
    """The contents of the file."""

    store_id: bytes
    cluster: str
    wrapped: dict[bytes, bytes]
    """The wrapped data key, by the id of the key pair it is wrapped for; newest first."""


def encode_store_keys(keys: StoreKeys) -> bytes:
    """Return the whole file, 8192 bytes."""
    name = keys.cluster.encode()
    assert len(name) <= 64, "names of clusters are shorter"
    assert 0 < len(keys.wrapped) <= ENTRIES_MAX, "one or two generations"
    front = HEADER.pack(MAGIC, VERSION, 0, keys.store_id, len(name), len(keys.wrapped), name)
    entries = b"".join([ENTRY.pack(*entry) for entry in keys.wrapped.items()])
    copy = (front + entries).ljust(COPY_BYTES, b"\0")
    checksum = struct.pack("<I", _checksum(copy))
    return (copy[:CHECKSUM_AT] + checksum + copy[CHECKED_FROM:]) * COPIES


def decode_store_keys(data: bytes) -> StoreKeys | None:
    """Return the contents of an intact copy; None if neither copy is intact. Raises NewerFormat."""
    for copy in _intact(data):
        _, version, _, store_id, length, count, name = HEADER.unpack_from(copy)
        if version > VERSION:
            raise NewerFormat(f"the file {KEYS_NAME}", version, VERSION)
        entries = copy[HEADER.size : HEADER.size + count * ENTRY.size]
        cluster = name[:length].decode(errors="replace")
        return StoreKeys(store_id, cluster, dict(ENTRY.iter_unpack(entries)))
    return None


def count_damaged(data: bytes) -> int:
    """Return how many of the copies are damaged."""
    return COPIES - len(_intact(data))


def _intact(data: bytes) -> list[bytes]:
    copies = [data[at : at + COPY_BYTES] for at in range(0, FILE_BYTES, COPY_BYTES)]
    return [
        copy
        for copy in copies
        if len(copy) == COPY_BYTES
        and copy.startswith(MAGIC)
        and struct.pack("<I", _checksum(copy)) == copy[CHECKSUM_AT:CHECKED_FROM]
    ]


def _checksum(copy: bytes) -> int:
    return crc32(copy[CHECKED_FROM:], crc32(copy[:CHECKSUM_AT]))
