"""Definitions for a broker to declare, as bytes: compressed msgpack. Listings go the other way, see listing.py."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

from mesh.errors import TooLarge
from security.unpacking import UNPACK_ERRORS

from ..errors import InvalidDefinition, Malformed
from .containers import unpack, unpack_limits

BYTES_MAX = 64 << 20
"""Limit before compression: enough for 200,000 queues."""
MAPS = frozenset(b"%c" % one for one in (*range(0x80, 0x90), 0xDE, 0xDF))
LISTS = frozenset(b"%c" % one for one in (*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of maps and of arrays in msgpack."""
NESTED = (dict, list, tuple)


def pack_definitions(plain: Any) -> bytes:
    """Encode definitions. Raises InvalidDefinition if msgpack cannot hold them, TooLarge above BYTES_MAX."""
    try:
        packed: bytes = msgpack.packb(plain)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        allowed = f"values that msgpack can hold ({error})"
        raise InvalidDefinition("definitions", "it", plain, allowed) from None
    if len(packed) > BYTES_MAX:
        raise TooLarge("definitions", len(packed), BYTES_MAX)
    _check_keys(plain)
    return zlib.compress(packed)


def _check_keys(value: Any, where: str = "") -> None:
    """Raise InvalidDefinition if a key at any depth is not text: the broker refuses to unpack such maps."""
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise InvalidDefinition("definitions", "a field's name", key, "text", where)
            if isinstance(one, NESTED):
                _check_keys(one, f"{where}.{key}" if where else key)
    elif isinstance(value, NESTED):
        for index, one in enumerate(value):
            _check_keys(one, f"{where}[{index}]")


def unpack_definitions(data: bytes) -> Any:
    """Decode definitions, entry by entry: in a worker thread, this lets other threads run in between.

    Raises Malformed.
    """
    try:
        decompressor = zlib.decompressobj()
        packed = decompressor.decompress(data, BYTES_MAX)
        if not decompressor.eof:
            raise Malformed(f"definitions that are truncated, or longer than {BYTES_MAX} bytes")
        if packed[:1] in MAPS:
            return _unpack_map(packed)
        return unpack(packed)
    except (zlib.error, *UNPACK_ERRORS) as error:
        raise Malformed(f"invalid definitions: {error}") from None


def _unpack_map(packed: bytes) -> dict[Any, Any]:
    """Decode as `unpackb` does; that is one call, during which no other thread can run."""
    # No value inside is longer than all of it.
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed), **unpack_limits(len(packed)))
    unpacker.feed(packed)
    found: dict[Any, Any] = {}
    for _ in range(unpacker.read_map_header()):
        name = unpacker.unpack()
        at = unpacker.tell()
        if packed[at : at + 1] in LISTS:
            found[name] = [unpacker.unpack() for _ in range(unpacker.read_array_header())]
        else:
            found[name] = unpacker.unpack()
    if unpacker.tell() != len(packed):
        raise ValueError("more than one value")
    return found
