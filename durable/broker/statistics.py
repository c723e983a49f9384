"""What is counted in a vhost, as plain values for clients and people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from ..queues.counts import Counts
from ..queues.latencies import by_bound
from ..queues.queue import Queue
from ..vhost.registry import Gap
from ..vhost.stream import Stream
from .hosted import Hosted


def statistics_of(hosted: Hosted, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Units are in the names; ages in seconds, None when there is nothing.

    Args:
        sees: whether who asks is to know of a queue or stream; the others are `hidden`, a number.
    """
    registry, log = hosted.vhost.registry, hosted.log.statistics()
    counts = hosted.vhost.intake.counts
    now_us = hosted.clock.now_us()
    queues = [one for one in registry.queues.values() if sees(one.name)]
    streams = [one for one in registry.streams.values() if sees(one.name)]
    there = len(registry.queues) + len(registry.streams)
    received = counts.received_bytes + counts.captured_bytes
    return {
        "queues": {one.name: _queue(one, now_us) for one in queues},
        "streams": {
            one.name: _stream(one, registry.gaps.get(one.lane.id, ()), now_us) for one in streams
        },
        "hidden": there - len(queues) - len(streams),
        "publishers": len(hosted.vhost.publishers),
        "lost": hosted.lost,
        "memory": {
            "recent_bytes": hosted.vhost.bodies.recent_bytes,
            "held_bytes": hosted.vhost.bodies.held_bytes,
        },
        "intake": asdict(counts),
        "confirm_us": by_bound(hosted.vhost.intake.confirms),
        "log": asdict(log),
        "written_per_received": log.committed_bytes / received if received else None,
    }


def _queue(queue: Queue, now_us: int) -> dict[str, Any]:
    return {
        "ready": queue.ready,
        "unacked": queue.unacked,
        "dead": queue.dead,
        "size_bytes": queue.size_bytes,
        "consumers": len(queue.consumers),
        "oldest_s": _age_s(queue.oldest_us(), now_us),
        "durability": "memory" if queue.definition.transient else "disk",
        **_counts(queue.counts),
    }


def _stream(stream: Stream, gaps: Iterable[Gap], now_us: int) -> dict[str, Any]:
    return {
        "start": stream.start, "end": stream.end, "size_bytes": stream.size_bytes,
        "oldest_s": _age_s(stream.lane.oldest_us(), now_us),
        "cursors": dict(stream.cursors), "missed": sum(gap.missed.messages for gap in gaps),
        **_counts(stream.counts),
    }  # fmt: skip


def _age_s(time_us: int | None, now_us: int) -> float | None:
    return None if time_us is None else max(0, now_us - time_us) / 1e6


def _counts(counts: Counts) -> dict[str, Any]:
    """Messages since the broker's start; and per second, over the last whole `RATES_S`. What bytes are
    counted, see counts.py; of a queue in memory there are none."""
    received, written = counts.received_bytes, counts.written_bytes
    return {
        "published": counts.published, "delivered": counts.delivered, "acked": counts.acked,
        **{f"{name}_per_s": rate for name, rate in counts.rates._asdict().items()},
        "received_bytes": received, "written_bytes": written,
        "written_per_received": written / received if received else None,
        "confirm_us": by_bound(counts.confirms),
    }  # fmt: skip
