"""Reads a field of many record headers at once, by its name in durable/log/record.py; the layout is defined there."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from durable.log.record import HEADER_BYTES, Header

from .gather import Bytes, Ints, Numbers, numbers

TYPES = (
    "S4", "u1", "u1", "<u2", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<i8", "<i8", "<i8", "<u4", "<u4",
)  # fmt: skip
_ENDS = [*accumulate((np.dtype(kind).itemsize for kind in TYPES), initial=0)]
LAYOUT = dict(zip(Header._fields, zip(_ENDS[:-1], TYPES, strict=True), strict=True))
"""For each field, the byte at which it begins and its type."""
assert _ENDS[-1] == HEADER_BYTES, "all of a header, and no more"


def field(headers: Bytes, at: Ints, name: str) -> Numbers:
    """Return the field of each record whose header begins at a byte of `at`, in its own type."""
    place, kind = LAYOUT[name]
    return numbers(headers, at + place, kind)
