"""Counters of a vhost as plain values, for clients and people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from ..queues.counts import Counts
from ..queues.latencies import by_bound
from ..queues.queue import Queue
from ..turns import some_at_once
from ..vhost.stream import Stream
from .running_vhost import RunningVhost

M = TypeVar("M", Queue, Stream)


def statistics_of(running: RunningVhost, sees: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """Yield the counters of a vhost, for `encode_listing`. Units are in the names; ages are in seconds, None if there
    is nothing.

    Each queue and stream is shown as it is when its part is made. One that is deleted before is left out,
    and one that is declared meanwhile may be. Every other one is there, once.

    Args:
        sees: whether the caller may know of a queue or stream; `hidden` is the number of all others.
    """
    registry, clock = running.vhost.registry, running.clock
    hidden = 0
    yield {"queues": {}, "streams": {}}
    for queues, unseen in _visible(registry.queues, sees):
        hidden += unseen
        yield {"queues": {one.name: _queue(one, clock.now_us()) for one in queues}}
    for streams, unseen in _visible(registry.streams, sees):
        hidden += unseen
        gaps, now_us = registry.gaps, clock.now_us()
        counters = {one.name: _stream(one, gaps.missing(one.lane.id), now_us) for one in streams}
        yield {"streams": counters}
    counts, log = running.vhost.intake.counts, running.log.statistics()
    received = counts.received_bytes + counts.captured_bytes
    yield {
        "hidden": hidden,
        "publishers": len(running.vhost.publishers),
        "lost": running.batch_reader.lost,
        "memory": {
            "recent_bytes": running.vhost.bodies.recent_bytes,
            "held_bytes": running.vhost.bodies.held_bytes,
        },
        "intake": asdict(counts),
        "confirm_us": by_bound(running.vhost.intake.confirms),
        "log": asdict(log),
        "written_per_received": log.committed_bytes / received if received else None,
    }


def _visible(
    members: Mapping[str, M], sees: Callable[[str], bool]
) -> Iterator[tuple[list[M], int]]:
    """Yield the visible members, a few at a time, and how many invisible ones there are beside them."""
    for names in some_at_once(list(members)):
        existing = [one for one in map(members.get, names) if one is not None]
        visible = [one for one in existing if sees(one.name)]
        yield visible, len(existing) - len(visible)


def _queue(queue: Queue, now_us: int) -> dict[str, Any]:
    return {
        "ready": queue.ready,
        "unacked": queue.unacked,
        "dead": queue.dead,
        "size_bytes": queue.size_bytes,
        "consumers": len(queue.consumers),
        "oldest_s": _age_s(queue.oldest_us(), now_us),
        "durability": "memory" if queue.definition.transient else "disk",
        "dropped": dict(queue.counts.dropped),
        **_counts(queue.counts),
    }


def _stream(stream: Stream, missed: int, now_us: int) -> dict[str, Any]:
    return {
        "start": stream.start, "end": stream.end, "size_bytes": stream.size_bytes,
        "oldest_s": _age_s(stream.lane.oldest_us(), now_us),
        "cursors": dict(stream.cursors), "missed": missed,
        **_counts(stream.counts),
    }  # fmt: skip


def _age_s(time_us: int | None, now_us: int) -> float | None:
    return None if time_us is None else max(0, now_us - time_us) / 1e6


def _counts(counts: Counts) -> dict[str, Any]:
    """Messages since the start of the broker, and per second over the last whole `RATES_S`. See counts.py for
    what counts as bytes; for memory queues there are none."""
    received, written = counts.received_bytes, counts.written_bytes
    return {
        "published": counts.published, "delivered": counts.delivered, "acked": counts.acked,
        **{f"{name}_per_s": rate for name, rate in counts.rates._asdict().items()},
        "received_bytes": received, "written_bytes": written,
        "written_per_received": written / received if received else None,
        "confirm_us": by_bound(counts.confirms),
    }  # fmt: skip
