"""Percentiles of times without keeping the times: counts in buckets that grow by a constant factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt


class Histogram:
    """Counts of times in us. It has at most log(2**63) / log(base) buckets.

    A percentile is at most `base` times too large, also after merging. Times below 1 us count as 1.
    """

    def __init__(self, base: float, counts: Mapping[int, int] | None = None) -> None:
        """`counts` are those of a histogram with the same base."""
        self.base = base
        self._counts = np.zeros(0, np.int64)
        if counts:
            self._counts = np.zeros(max(counts) + 1, np.int64)
            self._counts[list(counts)] = list(counts.values())

    @property
    def counts(self) -> dict[int, int]:
        """Counts of buckets that are not empty. A bucket's times are above base**(bucket - 1), up to base**bucket."""
        return {
            bucket: int(self._counts[bucket]) for bucket in np.flatnonzero(self._counts).tolist()
        }

    def add(self, times_us: npt.NDArray[Any]) -> None:
        buckets = np.ceil(np.log(np.maximum(times_us, 1)) / math.log(self.base))
        self._add(np.bincount(buckets.astype(np.int64)))

    def merge(self, other: Self) -> None:
        """Add the counts of a histogram with the same base."""
        assert self.base == other.base
        self._add(other._counts)

    def _add(self, counts: npt.NDArray[np.int64]) -> None:
        if len(counts) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(counts) - len(self._counts)))
        self._counts[: len(counts)] += counts

    def percentile_us(self, percent: float) -> float:
        """Return a time that at least `percent` of all times do not exceed; 0.0 if there are none."""
        sums = np.cumsum(self._counts)
        if not len(sums):
            return 0.0
        rank = max(1, math.ceil(int(sums[-1]) * percent / 100))
        return float(self.base ** int(np.searchsorted(sums, rank)))
