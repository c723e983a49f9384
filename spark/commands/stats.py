"""`mesh capture stats`: messages, bytes, rates and latency per queue or stream and topic."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.commands.terminal import printable

from .reading import read_batches
from .table import lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = ("queue", "topic", "timestamp", "published", "value")
BUCKETS_PER_OCTAVE = 128
OCTAVES = 64
HEADINGS = ("queue", "topic", "messages", "bytes", "per s", "p50 us", "p99 us", "max us")


class Topic:
    """Of one queue or stream: sums, and a histogram that is never wrong by more than 1 %."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.first_us, self.last_us = 1 << 62, 0
        self.max_us = 0
        self._took = np.zeros(OCTAVES * BUCKETS_PER_OCTAVE, np.int64)

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of this topic."""
        at_us = _us(batch.column("timestamp"))
        took_us = np.maximum(at_us - _us(batch.column("published")), 0)
        self.messages += len(at_us)
        self.bytes += int(pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0)
        self.first_us = min(self.first_us, int(at_us.min()))
        self.last_us = max(self.last_us, int(at_us.max()))
        self.max_us = max(self.max_us, int(took_us.max()))
        mantissa, exponent = np.frexp(np.maximum(took_us, 1).astype(float))
        bucket = exponent * BUCKETS_PER_OCTAVE + ((2 * mantissa - 1) * BUCKETS_PER_OCTAVE).astype(
            int
        )
        self._took += np.bincount(bucket, minlength=len(self._took))

    def percentile_us(self, share: float) -> int:
        """What `share` of all messages did not take longer than, from publisher to broker."""
        rank = int(np.ceil(self.messages * share))
        bucket = int(np.searchsorted(np.cumsum(self._took), rank))
        exponent, place = divmod(bucket, BUCKETS_PER_OCTAVE)
        above = np.ldexp(0.5 + (place + 1) / (2 * BUCKETS_PER_OCTAVE), exponent)
        return min(int(np.ceil(above)) - 1, self.max_us)

    def told(self) -> dict[str, Any]:
        seconds = (self.last_us - self.first_us) / 1e6
        return {
            "messages": self.messages, "bytes": self.bytes, "first": _moment(self.first_us),
            "last": _moment(self.last_us),
            "messages_per_s": round(self.messages / seconds, 1) if seconds else None,
            "p50_us": self.percentile_us(0.5), "p99_us": self.percentile_us(0.99),
            "max_us": self.max_us,
        }  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, DurableError."""
    topics: dict[tuple[str, str], Topic] = {}
    for batch in read_batches(args, COLUMNS):
        for key, rows in _split(batch):
            topics.setdefault(key, Topic()).add(rows)
    told = [
        {"queue": queue, "topic": topic, **found.told()}
        for (queue, topic), found in sorted(topics.items())
    ]
    if args.json:
        for row in told:
            print(json.dumps(row))
    else:
        _show(told)
    return 0


def _split(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], pa.RecordBatch]]:
    """By queue and topic."""
    queues, topics = (batch.column(name).dictionary_encode() for name in ("queue", "topic"))
    kinds = queues.indices.to_numpy() * len(topics.dictionary) + topics.indices.to_numpy()
    found = []
    for kind in np.unique(kinds):
        queue, topic = divmod(int(kind), len(topics.dictionary))
        key = queues.dictionary[queue].as_py(), topics.dictionary[topic].as_py()
        found.append((key, batch.filter(pa.array(kinds == kind))))
    return found


def _us(times: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return found


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")


def _show(told: list[dict[str, Any]]) -> None:
    rows = [
        (
            printable(row["queue"]), printable(row["topic"]), f"{row['messages']:,}",
            f"{row['bytes']:,}", "-" if row["messages_per_s"] is None else f"{row['messages_per_s']:,}",
            f"{row['p50_us']:,}", f"{row['p99_us']:,}", f"{row['max_us']:,}",
        )
        for row in told
    ]  # fmt: skip
    for line in lines(HEADINGS, rows, names=2):
        print(line)
