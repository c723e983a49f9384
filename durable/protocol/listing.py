"""Listings of everything in a vhost, as bytes; they may be long, so they are encoded and decoded piece by piece.

    listing   compressed by zlib: per dict, u32 length of what follows, then the dict in msgpack

The dicts are parts of one dict: lists and dicts that several parts have under one name are concatenated.
Compression takes much off, because the names of thousands of queues differ little.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgpack

from mesh.errors import TooLarge
from security.unpacking import UNPACK_ERRORS

from ..errors import Malformed

LENGTH = struct.Struct("<I")
BYTES_MAX = 128 << 20
"""Limit before compression. Durable definitions stay below it: a segment of the default size has to hold them twice."""
DECOMPRESSED_BYTES = 64 * 1024
"""How much is decompressed at a time."""


class Listing:
    """A listing that is being encoded."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj()
        self._compressed: list[bytes] = []
        self._size_bytes = 0

    def add(self, some: dict[str, Any]) -> None:
        """Append a dict. Raises TooLarge beyond BYTES_MAX, which no reader accepts."""
        packed: bytes = msgpack.packb(some)
        packed = LENGTH.pack(len(packed)) + packed
        self._size_bytes += len(packed)
        if self._size_bytes > BYTES_MAX:
            raise TooLarge("a listing", self._size_bytes, BYTES_MAX)
        self._compressed.append(self._compressor.compress(packed))

    def finish(self) -> bytes:
        """Return the encoded listing of all dicts added."""
        return b"".join([*self._compressed, self._compressor.flush()])


def read_listing(data: object) -> Iterator[dict[str, Any]]:
    """Yield the dicts of a listing. Raises Malformed."""
    if not isinstance(data, bytes):
        raise Malformed(f"a listing of type {type(data).__name__}")
    try:
        yield from _read(data)
    except (zlib.error, *UNPACK_ERRORS) as error:
        raise Malformed(f"a listing that is invalid: {error}") from None


def _read(data: bytes) -> Iterator[dict[str, Any]]:
    decompressor, kept, size_bytes = zlib.decompressobj(), bytearray(), 0
    while not decompressor.eof:
        some = decompressor.decompress(data, DECOMPRESSED_BYTES)
        data = decompressor.unconsumed_tail
        size_bytes += len(some)
        if not (some or decompressor.eof) or size_bytes > BYTES_MAX:
            raise Malformed(f"a listing that is truncated, or longer than {BYTES_MAX} bytes")
        kept += some
        while len(kept) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(kept)[0]
            if len(kept) < end:
                break
            found = msgpack.unpackb(bytes(kept[LENGTH.size : end]))
            del kept[:end]
            if not isinstance(found, dict):
                raise Malformed(f"a listing of {type(found).__name__}")
            yield found
    if kept:
        raise Malformed("a listing that is truncated")


def merge_listing(whole: dict[str, Any], some: dict[str, Any]) -> None:
    """Merge the next dict of a listing into `whole`: lists and dicts are extended, other values replaced."""
    for name, value in some.items():
        present = whole.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            present.update(value)
        elif isinstance(present, list) and isinstance(value, list):
            present.extend(value)
        else:
            whole[name] = value
