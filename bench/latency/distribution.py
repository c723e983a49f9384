"""All samples of a run, sorted: exact quantiles, and how deep they go before they say nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .generator import Run

BEYOND_MIN = 10
"""Samples that must lie beyond a quantile before it is drawn as more than a guess."""
QUANTILES = {
    "p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999,
    "p99.999": 0.99999, "p99.9999": 0.999999,
}  # fmt: skip

Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """`sorted_ns` is ascending and not empty."""

    sorted_ns: Nanoseconds

    @classmethod
    def of(cls, samples_ns: Nanoseconds) -> Distribution:
        assert len(samples_ns), "no samples, no distribution"
        return cls(np.sort(samples_ns))

    @property
    def count(self) -> int:
        return len(self.sorted_ns)

    @property
    def max_ns(self) -> int:
        return int(self.sorted_ns[-1])

    def at(self, quantile: float) -> int:
        """The smallest sample that at least that share of all do not exceed (nearest rank)."""
        assert 0 <= quantile <= 1, "a share, not a percentage"
        rank = math.ceil(self.count * quantile - 1e-9)
        return int(self.sorted_ns[max(rank, 1) - 1])

    @property
    def deepest(self) -> float:
        """The quantile beyond which fewer than BEYOND_MIN samples lie."""
        return max(1 - BEYOND_MIN / self.count, 0.0)

    def named(self) -> dict[str, int]:
        """The usual quantiles that the samples support, and the largest."""
        known = {name: self.at(share) for name, share in QUANTILES.items() if share <= self.deepest}
        return {**known, "max": self.max_ns}


def arrays(run: Run, skip: int) -> dict[str, Nanoseconds]:
    """Response, uncorrected and delay (see samples.py) of the requests from number `skip` on.

    A lost one counts until the end of the run: it is not shorter than that.
    """
    count = run.samples.sent
    sent = np.frombuffer(run.samples.sent_ns, dtype=np.int64)[:count]
    replied = np.array(run.samples.replied_ns, dtype=np.int64)[:count]
    replied[replied == 0] = run.end_ns
    # The same arithmetic as Schedule.due_ns, for all of them.
    numbers = np.arange(count, dtype=np.int64)
    due = run.schedule.start_ns + (numbers * 1e9 / run.schedule.rate_per_s).astype(np.int64)
    closed = one_at_a_time(sent, replied, run.connections)
    return {
        "response": (replied - due)[skip:],
        "uncorrected": (replied - sent)[skip:][closed[skip:]],
        "delay": (sent - due)[skip:],
    }


def one_at_a_time(sent: Nanoseconds, replied: Nanoseconds, connections: int) -> NDArray[np.bool_]:
    """Which requests a load would have sent that waits, on each connection, for every reply."""
    chosen = np.zeros(len(sent), dtype=np.bool_)
    for connection in range(connections):
        free_ns = 0
        for number in range(connection, len(sent), connections):
            if sent[number] >= free_ns:
                chosen[number], free_ns = True, replied[number]
    return chosen
