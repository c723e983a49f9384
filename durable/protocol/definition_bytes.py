"""Definitions that a broker is to declare, as they travel: msgpack, compressed; see listing.py."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

from mesh.errors import TooLarge

from ..errors import InvalidDefinition, Malformed

BYTES_MAX = 64 << 20
"""Not compressed: 200,000 queues."""


def pack_definitions(plain: Any) -> bytes:
    """Raises InvalidDefinition: it is none; TooLarge: nobody takes it."""
    try:
        packed: bytes = msgpack.packb(plain)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        allowed = f"what msgpack holds ({error})"
        raise InvalidDefinition("definitions", "it", plain, allowed) from None
    if len(packed) > BYTES_MAX:
        raise TooLarge("definitions", len(packed), BYTES_MAX)
    return zlib.compress(packed)


def unpack_definitions(data: bytes) -> Any:
    """Raises Malformed."""
    try:
        opened = zlib.decompressobj()
        packed = opened.decompress(data, BYTES_MAX)
        if not opened.eof:
            raise Malformed(f"definitions that are cut, or longer than {BYTES_MAX} bytes")
        return msgpack.unpackb(packed)
    except (zlib.error, ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise Malformed(f"definitions that are none: {error}") from None
