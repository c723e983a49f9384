"""A vhost's definitions as they travel: msgpack, compressed, for thousands of queues differ in little."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

from mesh.errors import TooLarge

from ..errors import InvalidDefinition, Malformed

BYTES_MAX = 64 << 20
"""Of definitions that a broker is to declare, not compressed: 200,000 queues."""
LISTED_BYTES_MAX = 128 << 20
"""Of those that it lists: more than a segment takes twice, so of what lasts there is no more."""


def pack_definitions(plain: Any, bytes_max: int = BYTES_MAX) -> bytes:
    """Raises InvalidDefinition: it is none; TooLarge: nobody takes it."""
    try:
        packed: bytes = msgpack.packb(plain)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        allowed = f"what msgpack holds ({error})"
        raise InvalidDefinition("definitions", "it", plain, allowed) from None
    if len(packed) > bytes_max:
        raise TooLarge("definitions", len(packed), bytes_max)
    return zlib.compress(packed)


def unpack_definitions(data: object, bytes_max: int = BYTES_MAX) -> Any:
    """Raises Malformed."""
    if not isinstance(data, bytes):
        raise Malformed(f"definitions that are {type(data).__name__}")
    try:
        opened = zlib.decompressobj()
        packed = opened.decompress(data, bytes_max)
        if not opened.eof:
            raise Malformed(f"definitions that are cut, or longer than {bytes_max} bytes")
        return msgpack.unpackb(packed)
    except (zlib.error, ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise Malformed(f"definitions that are none: {error}") from None
