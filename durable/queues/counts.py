"""Counters of a queue or stream: its messages, their rates, and the bytes received and written for it.

Bytes are counted where they belong to one queue. Received: the batches stored in it. Written: its share of
their records, each divided by the number of queues it was routed to, and the settlements and returns of its
messages. Not counted, because they belong to all queues: snapshots, checkpoints, what compaction carries
forward, what encryption adds, and the ends of commits and segments. Declarations, cursors and gaps are not
counted either, because they are rare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Rates(NamedTuple):
    """Messages per second, over the last complete interval."""

    published: float = 0.0
    delivered: float = 0.0
    acked: float = 0.0


NO_RATES = Rates()
NO_CONFIRMS: dict[int, int] = {}
NO_DROPS: Mapping[str, int] = {}
"""Shared by all queues without a record, because most of many thousands may never have one; never changed."""


@dataclass(slots=True, eq=False)
class Counts:
    """Messages since the broker's start. The caller keeps the time, and calls `sample` once per interval."""

    published: int = 0
    """Messages that became durable in the queue."""
    delivered: int = 0
    """Messages delivered to consumers or readers; redeliveries count again."""
    acked: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: NO_DROPS)
    """Messages that left without an ack and without a dead letter, by reason. Replaced by each `drop`."""
    rates: Rates = NO_RATES
    received_bytes: int = 0
    written_bytes: int = 0
    confirms: dict[int, int] = field(default_factory=lambda: NO_CONFIRMS)
    """Histogram of how long its records took to be durable: see latencies.py. Replaced for each new bucket."""
    _last_sample: tuple[int, int, int] = (0, 0, 0)

    def confirm(self, bucket: int, received_bytes: int, written_bytes: int) -> None:
        """Count one durable record with messages of this queue.

        Args:
            bucket: of the record's latency, see latencies.py.
            written_bytes: this queue's share of the record.
        """
        self.received_bytes += received_bytes
        self.written_bytes += written_bytes
        try:
            self.confirms[bucket] += 1
        except KeyError:
            self.confirms = {**self.confirms, bucket: 1}

    def drop(self, reason: str, count: int) -> None:
        """Count messages that left without a dead letter."""
        self.dropped = {**self.dropped, reason: self.dropped.get(reason, 0) + count}

    def sample(self, elapsed_s: float) -> None:
        """End an interval of `elapsed_s` seconds, which must be more than 0: compute its rates."""
        now, before = (self.published, self.delivered, self.acked), self._last_sample
        if now != before:
            self._last_sample = now
            self.rates = Rates(
                *((new - old) / elapsed_s for new, old in zip(now, before, strict=True))
            )
        elif self.rates is not NO_RATES:
            self.rates = NO_RATES
