"""A vhost's definitions as they travel: msgpack, compressed, for thousands of queues differ in little."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

from ..errors import InvalidDefinition, Malformed

BYTES_MAX = 64 << 20
"""Of definitions, not compressed: 200,000 queues."""


def pack_definitions(plain: Any) -> bytes:
    """Raises InvalidDefinition, Malformed: what nobody would take."""
    try:
        packed: bytes = msgpack.packb(plain)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        allowed = f"what msgpack holds ({error})"
        raise InvalidDefinition("definitions", "it", plain, allowed) from None
    if len(packed) > BYTES_MAX:
        raise Malformed(f"definitions of {len(packed)} bytes, at most {BYTES_MAX}")
    return zlib.compress(packed)


def unpack_definitions(data: object) -> Any:
    """Raises Malformed."""
    if not isinstance(data, bytes):
        raise Malformed(f"definitions that are {type(data).__name__}")
    try:
        opened = zlib.decompressobj()
        packed = opened.decompress(data, BYTES_MAX)
        if not opened.eof:
            raise Malformed(f"definitions that are cut, or longer than {BYTES_MAX} bytes")
        return msgpack.unpackb(packed)
    except (zlib.error, ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise Malformed(f"definitions that are none: {error}") from None
