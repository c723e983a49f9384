"""All samples of a run, sorted: exact quantiles, and how far into the tail there are enough samples for one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .generator import Run

BEYOND_MIN = 10
"""A quantile is reported only if at least so many samples lie beyond it."""
QUANTILES = {
    "p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999,
    "p99.999": 0.99999, "p99.9999": 0.999999,
}  # fmt: skip

Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of times in nanoseconds; `sorted_ns` is ascending and not empty."""

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
        """Return the smallest sample, in ns, that at least that share of all samples do not exceed (nearest rank)."""
        assert 0 <= quantile <= 1, "a share, not a percentage"
        rank = math.ceil(self.count * quantile - 1e-9)
        return int(self.sorted_ns[max(rank, 1) - 1])

    @property
    def deepest(self) -> float:
        """The highest quantile beyond which BEYOND_MIN samples lie, or 0 with too few samples."""
        return max(1 - BEYOND_MIN / self.count, 0.0)

    def named(self) -> dict[str, int]:
        """Return the quantiles of QUANTILES that have enough samples, by name, and the maximum, in ns."""
        known = {name: self.at(share) for name, share in QUANTILES.items() if share <= self.deepest}
        return {**known, "max": self.max_ns}


def arrays(run: Run, skip: int) -> dict[str, Nanoseconds]:
    """Return response, uncorrected and delay (see samples.py) of the requests from number `skip` on, in ns.

    A lost request counts as answered at the end of the run: it took at least that long.
    """
    count = run.samples.sent
    sent = np.frombuffer(run.samples.sent_ns, dtype=np.int64)[:count]
    replied = np.array(run.samples.replied_ns, dtype=np.int64)[:count]
    replied[replied == 0] = run.end_ns
    # Same arithmetic as Schedule.due_ns, for all requests at once.
    numbers = np.arange(count, dtype=np.int64)
    due = run.schedule.start_ns + (numbers * 1e9 / run.schedule.rate_per_s).astype(np.int64)
    closed = one_at_a_time(sent, replied, run.connections)
    return {
        "response": (replied - due)[skip:],
        "uncorrected": (replied - sent)[skip:][closed[skip:]],
        "delay": (sent - due)[skip:],
    }


def one_at_a_time(sent: Nanoseconds, replied: Nanoseconds, connections: int) -> NDArray[np.bool_]:
    """Mark the requests that a load would have sent that waits for each reply before its connection's next request."""
    chosen = np.zeros(len(sent), dtype=np.bool_)
    for connection in range(connections):
        free_ns = 0
        for number in range(connection, len(sent), connections):
            if sent[number] >= free_ns:
                chosen[number], free_ns = True, replied[number]
    return chosen
