"""How long records took from being appended to being durable: a histogram by powers of two.

Bucket `n` counts what took less than 2**n us, and not less than half of that. A histogram is a dict of
those that have counted something: there may be one for each of many thousands of queues.
"""

from __future__ import annotations

from collections.abc import Mapping

BUCKETS = 40


def bucket_of(latency_us: int) -> int:
    """Which one counts it."""
    return min(max(latency_us, 0).bit_length(), BUCKETS - 1)


def by_bound(counts: Mapping[int, int]) -> dict[str, int]:
    """A histogram by upper bounds in us."""
    return {str(1 << bucket): counts[bucket] for bucket in sorted(counts)}
