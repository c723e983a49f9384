"""Sequences by which a broker recognises rows that are sent again.

By row: a row's number in its partition, which is the same if the same plan runs again.

By offset: the offset itself. With counted rows, a row that is gone at the next attempt would shift all later
rows onto lower sequences, and a row that gets the sequence of a stored one would count as stored.

The price is a batch for each run of consecutive offsets, and a hole in what the broker remembers for each gap:
`targets.py` limits how many of them may be under way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .errors import Disordered

BATCH_SHIFT = 32
"""A streaming query numbers its rows from `batch id << 32` on."""
Ints = npt.NDArray[np.int64]


class OffsetOrder:
    """Checks the order of the offsets of one queue and partition, which are used as sequences."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._last_offset = -1

    def check(self, offsets: Ints) -> None:
        """Check the next offsets, at least one. Raises Disordered unless each one is greater than the one before."""
        if offsets[0] <= self._last_offset or (np.diff(offsets) <= 0).any():
            raise Disordered(self._lane, "its offsets go back, or appear twice")
        self._last_offset = int(offsets[-1])
