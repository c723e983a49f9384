"""`mesh capture stats`: prints messages, bytes, rates and latency per queue or stream and topic."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.commands.terminal import printable
from mesh.times import format_time

from ..histogram import Histogram
from .reading import read_batches
from .table import lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = ("queue", "topic", "timestamp", "published", "value")
TOOK_BASE = 1.01
"""Percentiles of latency are accurate to 1 %."""
HEADINGS = ("queue", "topic", "messages", "bytes", "per s", "p50 us", "p99 us", "max us")


class TopicStats:
    """Totals and latencies of one topic in one queue or stream."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.first_us, self.last_us = 1 << 62, 0
        self.max_us = 0
        self._took = Histogram(TOOK_BASE)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of this topic."""
        at_us = _us(batch.column("timestamp"))
        took_us = np.maximum(at_us - _us(batch.column("published")), 0)
        self.messages += len(at_us)
        self.bytes += int(pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0)
        self.first_us = min(self.first_us, int(at_us.min()))
        self.last_us = max(self.last_us, int(at_us.max()))
        self.max_us = max(self.max_us, int(took_us.max()))
        self._took.add(took_us)

    def percentile_us(self, percent: float) -> int:
        """Return the time from publisher to broker that `percent` of all messages did not exceed."""
        return min(int(self._took.percentile_us(percent)), self.max_us)

    def to_row(self) -> dict[str, Any]:
        seconds = (self.last_us - self.first_us) / 1e6
        return {
            "messages": self.messages, "bytes": self.bytes, "first": _moment(self.first_us),
            "last": _moment(self.last_us),
            "messages_per_s": round(self.messages / seconds, 1) if seconds else None,
            "p50_us": self.percentile_us(50), "p99_us": self.percentile_us(99),
            "max_us": self.max_us,
        }  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, DurableError."""
    topics: dict[tuple[str, str], TopicStats] = {}
    for batch in read_batches(args, COLUMNS):
        for key, rows in _split(batch):
            topics.setdefault(key, TopicStats()).add(rows)
    table = [
        {"queue": queue, "topic": topic, **found.to_row()}
        for (queue, topic), found in sorted(topics.items())
    ]
    if args.json:
        for row in table:
            print(json.dumps(row))
    else:
        _show(table)
    return 0


def _split(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], pa.RecordBatch]]:
    """Split a batch by queue and topic."""
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
    return format_time(datetime.fromtimestamp(us / 1e6, UTC), "milliseconds")


def _show(table: list[dict[str, Any]]) -> None:
    rows = [
        (
            printable(row["queue"]), printable(row["topic"]), f"{row['messages']:,}",
            f"{row['bytes']:,}", "-" if row["messages_per_s"] is None else f"{row['messages_per_s']:,}",
            f"{row['p50_us']:,}", f"{row['p99_us']:,}", f"{row['max_us']:,}",
        )
        for row in table
    ]  # fmt: skip
    for line in lines(HEADINGS, rows, names=2):
        print(line)
