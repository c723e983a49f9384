"""Sequences by which a broker recognises rows that come again.

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


class OffsetOrder:
    """Of one queue and partition, whose offsets are sequences as they are."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._last = -1

    def check(self, offsets: Ints) -> None:
        """The next ones, one at least. Raises Disordered: one is not after the one before."""
        if offsets[0] <= self._last or (np.diff(offsets) <= 0).any():
            raise Disordered(self._lane, "its offsets go back, or come twice")
        self._last = int(offsets[-1])
