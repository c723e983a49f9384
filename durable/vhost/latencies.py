"""How long records took from being appended to being durable: a histogram by powers of two."""

from __future__ import annotations

BUCKETS = 40


class Latencies:
    """Bucket `n` counts what took less than 2**n us, and not less than half of that."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS

    def add(self, latency_us: int) -> None:
        self._counts[min(max(latency_us, 0).bit_length(), BUCKETS - 1)] += 1

    def counts(self) -> dict[str, int]:
        """By upper bound in us; empty buckets are left out."""
        return {str(1 << bits): count for bits, count in enumerate(self._counts) if count}
