"""How many messages went through a queue or stream, how many of them per second, and what that took.

Bytes are counted where they are the queue's own: received are the batches that were stored in it,
written are its share of their records, with as many shares as queues that the record is for, and what
settlements and returns of its messages take. Not in it, because it is of all queues: snapshots,
checkpoints, what compaction carries forward, what encryption adds, the ends of commits and segments.
Nor are declarations, cursors and gaps, which are rare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Rates(NamedTuple):
    """Messages per second, over the last interval that has ended."""

    published: float = 0.0
    delivered: float = 0.0
    acked: float = 0.0


NO_RATES = Rates()
NOTHING: dict[int, int] = {}
NO_DROPS: Mapping[str, int] = {}
"""Both shared by all that have had no record: most of many thousands of queues may never have any."""


@dataclass(slots=True, eq=False)
class Counts:
    """Messages since the broker's start. Whoever keeps the time calls `sample` at intervals."""

    published: int = 0
    """Durable, and in the queue."""
    delivered: int = 0
    """To consumers or readers; again when they came back."""
    acked: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: NO_DROPS)
    """Gone for another reason than an ack, without a dead letter: by reason. Replaced by each."""
    rates: Rates = NO_RATES
    received_bytes: int = 0
    written_bytes: int = 0
    confirms: dict[int, int] = field(default_factory=lambda: NOTHING)
    """How long its records took to be durable: see latencies.py. Replaced by each new bucket."""
    _then: tuple[int, int, int] = (0, 0, 0)

    def confirm(self, bucket: int, received_bytes: int, written_bytes: int) -> None:
        """A record of its messages is durable.

        Args:
            bucket: see latencies.py.
            written_bytes: its share.
        """
        self.received_bytes += received_bytes
        self.written_bytes += written_bytes
        try:
            self.confirms[bucket] += 1
        except KeyError:
            self.confirms = {**self.confirms, bucket: 1}

    def drop(self, reason: str, count: int) -> None:
        """So many are gone without a dead letter."""
        self.dropped = {**self.dropped, reason: self.dropped.get(reason, 0) + count}

    def sample(self, elapsed_s: float) -> None:
        """An interval of so many seconds, more than 0, has ended."""
        now, then = (self.published, self.delivered, self.acked), self._then
        if now != then:
            self._then = now
            self.rates = Rates(
                *((new - old) / elapsed_s for new, old in zip(now, then, strict=True))
            )
        elif self.rates is not NO_RATES:
            self.rates = NO_RATES
