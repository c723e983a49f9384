"""Builds columns from values scattered in bytes, without a loop over the values.

All functions take the bytes as an array of u8, and positions in it as int64, in the order wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


def numbers(buffer: Bytes, at: Ints, dtype: str) -> Numbers:
    """Return the number of type `dtype` at each byte position of `at`, aligned or not."""
    size = np.dtype(dtype).itemsize
    if not len(at):
        return np.empty(0, dtype)
    # A view whose items overlap: item i begins at byte i, so one `take` fetches them all.
    view: Numbers = np.ndarray((len(buffer) - size + 1,), dtype, buffer, 0, (1,))
    return view[at]


def concat_ranges(start: Ints, count: Ints) -> Ints:
    """Return `count[0]` numbers from start[0] on, then `count[1]` from start[1] on, and so forth."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - (ends - count), count) + np.arange(total, dtype=np.int64)


def spans(data: bytes, start: Ints, end: Ints, kind: pa.DataType) -> pa.Array:
    """Return `data[start[i]:end[i]]` as an array of binary, or of strings. Raises ArrowInvalid if it is not UTF-8.

    Spans are in order and do not overlap. What they hold together is copied once, in C.
    """
    count = len(start)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[0::2], edges[1::2] = start, end
    # Seen as values, every second one is a gap between two spans; `take` leaves those out.
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    values = both.take(pa.array(np.arange(0, 2 * count - 1, 2)))
    return values if kind == pa.binary() else values.cast(kind)


def joined(data: bytes, start: Ints, end: Ints) -> pa.Buffer:
    """Return all spans concatenated; a single one is not copied."""
    if len(start) == 1:
        return pa.py_buffer(data).slice(int(start[0]), int(end[0] - start[0]))
    return spans(data, start, end, pa.binary()).buffers()[2]
