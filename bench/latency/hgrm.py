"""The text format of HdrHistogram's percentile plots (`.hgrm`), in milliseconds.

Four columns: value, percentile as a share, count of samples up to that value, 1 / (1 - share). The shares approach 1 as
those of HdrHistogram's own percentile iterator: TICKS even steps through half of the rest, then again with the rest
halved, until the rest is a single sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .distribution import Distribution

TICKS = 5
MS_NS = 1e6


def shares(count: int) -> Iterator[float]:
    """Yield shares from 0 towards 1: TICKS steps in each half of the rest, down to one sample of `count`."""
    left = 1.0
    while left > 1 / count:
        for tick in range(TICKS):
            yield 1 - left + tick * left / 2 / TICKS
        left /= 2


def lines(found: Distribution) -> Iterator[str]:
    """Yield the lines of the whole file; only the first ends with a newline of its own."""
    yield f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}\n"
    for share in shares(found.count):
        value_ns = found.at(share)
        counted = int(np.searchsorted(found.sorted_ns, value_ns, side="right"))
        yield row(value_ns, share, counted) + f" {1 / (1 - share):14.2f}"
    yield row(found.max_ns, 1.0, found.count)
    mean_ms, deviation_ms = found.sorted_ns.mean() / MS_NS, found.sorted_ns.std() / MS_NS
    yield f"#[Mean    = {mean_ms:12.3f}, StdDeviation   = {deviation_ms:12.3f}]"
    yield f"#[Max     = {found.max_ns / MS_NS:12.3f}, Total count    = {found.count:12d}]"
    buckets = max(math.ceil(math.log2(max(found.max_ns, 2))), 1)
    yield f"#[Buckets = {buckets:12d}, SubBuckets     = {found.count:12d}]"


def row(value_ns: int, share: float, counted: int) -> str:
    return f"{value_ns / MS_NS:12.6f} {share:14.12f} {counted:10d}"


def text(found: Distribution) -> str:
    return "\n".join(lines(found)) + "\n"
