"""When requests are due: computed from the start, so that one late request does not delay the following ones."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Request k of `count` is due k / rate seconds after `start_ns`."""

    start_ns: int
    rate_per_s: float
    count: int

    def due_ns(self, number: int) -> int:
        return self.start_ns + int(number * NS / self.rate_per_s)

    def due_count(self, now_ns: int) -> int:
        """Return how many requests are due by `now_ns`: those with numbers below that."""
        if now_ns < self.start_ns:
            return 0
        guess = int((now_ns - self.start_ns) * self.rate_per_s / NS)
        while guess < self.count and self.due_ns(guess) <= now_ns:
            guess += 1
        return min(guess, self.count)
