"""Headers of messages, which are msgpack maps, as lists of keys and values in Arrow.

Text stays UTF-8 and bytes stay bytes; any other value becomes JSON text. Equal headers are decoded once,
because most messages of a batch have the same ones.
"""

from __future__ import annotations

import json
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from security.unpacking import UNPACK_ERRORS

from .rows import HEADER_LIST

Pair = dict[str, str | bytes]
DEPTH_MAX = 100
"""Deeper headers inside headers are cut off: msgpack lets a publisher nest deeper than Python can recurse."""


def header_lists(raw: pa.Array) -> pa.Array:
    """Decode an array of binary; what is not a msgpack map becomes an empty list."""
    encoded = raw.dictionary_encode()
    decoded = [_pairs(one) for one in encoded.dictionary.to_pylist()]
    return pa.array(decoded, HEADER_LIST).take(encoded.indices)


def no_headers(rows: int) -> pa.Array:
    """Return empty lists. `pa.repeat` would take 1 us for each, longer than everything else for a row."""
    offsets = pa.array(np.zeros(rows + 1, np.int32))
    values = pa.array([], HEADER_LIST.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=HEADER_LIST)


def _pairs(raw: bytes) -> list[Pair]:
    try:
        found = msgpack.unpackb(raw) if raw else {}
    except UNPACK_ERRORS:
        return []
    if not isinstance(found, dict):
        return []
    return [{"key": str(key), "value": _value(value)} for key, value in found.items()]


def _value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(_plain(value))).encode()


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can represent. Bytes, also as names, become text in Python's notation."""
    if isinstance(value, dict | list) and depth >= DEPTH_MAX:
        return "..."
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else repr(name): _plain(one, depth + 1)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
