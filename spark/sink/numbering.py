"""Sequences by which a broker recognises rows that come again, in arrays.

By row: its number in its partition. It is the same when the same plan runs again.

By offset: the offset itself. Had rows been counted, all would move up when one of them is gone, and what
moves onto the place of one that is stored would pass for stored.

The price is a batch for each run of offsets without a gap, and a hole in what the broker knows: see
`targets.py` for how many of them may be under way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .errors import Disordered

BATCH_SHIFT = 32
"""A streaming query numbers its rows from `batch id << 32` on."""
Ints = npt.NDArray[np.int64]


def row_sequences(first: int, count: int) -> Ints:
    return np.arange(first, first + count, dtype=np.int64)


class OffsetNumbers:
    """Of one queue and partition; fed with its offsets in order."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._last = -1

    def sequences(self, offsets: Ints) -> Ints:
        """Raises Disordered: an offset is not after the one before."""
        if len(offsets):
            before = np.concatenate(([self._last], offsets[:-1]))
            if (offsets <= before).any():
                raise Disordered(self._lane, "its offsets go back, or come twice")
            self._last = int(offsets[-1])
        return offsets
