"""Sequences by which a broker recognises rows that come again, in arrays.

By row: its number in its partition. It is the same when the same plan runs again.

By offset: where the row was captured, whatever has been filtered out before it. Offsets with holes
would make a batch of every row, so those of one block are numbered from the block's beginning on:

    offsets      0  1  4  9 | 16 17 20        blocks of 16
    sequences    0  1  2  3 | 16 17 18
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .errors import Disordered

BLOCK = 1 << 16
BATCH_SHIFT = 32
"""A streaming query numbers its rows from `batch id << 32` on."""
Ints = npt.NDArray[np.int64]


def row_sequences(first: int, count: int) -> Ints:
    return np.arange(first, first + count, dtype=np.int64)


class OffsetNumbers:
    """Of one queue and partition; fed with its offsets in order."""

    def __init__(self, lane: str, block: int = BLOCK) -> None:
        self._lane, self._block = lane, block
        self._last = -1
        self._next = 0
        """After the sequence of the last one."""

    def sequences(self, offsets: Ints) -> Ints:
        """Raises Disordered: an offset is not after the one before."""
        if not len(offsets):
            return offsets
        before = np.concatenate(([self._last], offsets[:-1]))
        if (offsets <= before).any():
            raise Disordered(self._lane, "its offsets go back, or come twice")
        bases = offsets // self._block * self._block
        begins = np.flatnonzero(np.diff(bases, prepend=-1))
        if self._last >= 0 and self._last // self._block * self._block == bases[0]:
            first = self._next
        else:
            first = int(bases[0])
        starts = bases[begins]
        starts[0] = first
        lengths = np.diff(np.append(begins, len(offsets)))
        found = np.repeat(starts - begins, lengths) + np.arange(len(offsets))
        self._last, self._next = int(offsets[-1]), int(found[-1]) + 1
        return found
