"""How long records took from append to durable: a histogram by powers of two.

Bucket `n` counts latencies below 2**n us and not below half of that. A histogram is a dict of its nonempty
buckets only, because there may be one for each of many thousands of queues.
"""

from __future__ import annotations

from collections.abc import Mapping

BUCKETS = 40


def bucket_of(latency_us: int) -> int:
    """Return the bucket that counts this latency."""
    return min(max(latency_us, 0).bit_length(), BUCKETS - 1)


def by_bound(counts: Mapping[int, int]) -> dict[str, int]:
    """Return a histogram by the upper bounds of its buckets, in us."""
    return {str(1 << bucket): counts[bucket] for bucket in sorted(counts)}
