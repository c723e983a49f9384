"""Small control bodies: msgpack arrays of values, checked for type and size when they come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from security.unpacking import UNPACK_ERRORS

from ..errors import RemoteProtocolError

BODY_BYTES_MAX = 192 * 1024
TEXT_BYTES_MAX = 4096
ARRAY_MAX, MAP_MAX, BYTES_MAX = 1024, 256, 8192
"""Largest array, map and byte string in a body."""


def encode_values(*values: Any) -> bytes:
    packed: bytes = msgpack.packb(values)
    return packed


def decode_values(
    body: bytes, what: str, types: Sequence[type], defaults: Sequence[Any] = ()
) -> list[Any]:
    """Return the values in the body of a record called `what`, which must have exactly these types.

    Args:
        defaults: of further fields, which follow the others and which older peers do not send.

    Raises:
        RemoteProtocolError: if a value is missing or has another type, or as `load_values` does.
    """
    values = load_values(body, what)
    # Fields may be added at the end by later versions; the ones we know must be there.
    check(what, len(values) >= len(types))
    values += defaults[len(values) - len(types) :]
    types = (*types, *map(type, defaults))
    check(what, *(type(value) is wanted for value, wanted in zip(values, types, strict=False)))
    return values[: len(types)]


def load_values(body: bytes, what: str) -> list[Any]:
    """Return the values, of any types. Raises RemoteProtocolError if the body is not an array, or over a limit."""
    if len(body) > BODY_BYTES_MAX:
        raise RemoteProtocolError(f"{what} of {len(body)} bytes, the limit is {BODY_BYTES_MAX}")
    try:
        values = msgpack.unpackb(
            body, max_array_len=ARRAY_MAX, max_map_len=MAP_MAX, max_str_len=TEXT_BYTES_MAX,
            max_bin_len=BYTES_MAX, max_ext_len=0,
        )  # fmt: skip
    except UNPACK_ERRORS as error:
        raise RemoteProtocolError(f"{what} is not msgpack: {type(error).__name__}") from None
    if not isinstance(values, list):
        raise RemoteProtocolError(f"{what} is not an array")
    return values


def check(what: str, *conditions: bool) -> None:
    """Raise RemoteProtocolError unless all conditions are true."""
    if not all(conditions):
        raise RemoteProtocolError(f"{what} with an invalid field")


def clip(text: str) -> str:
    """Return as much of a text as a peer accepts, as valid UTF-8: a peer ends the link for a longer one."""
    return text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")
