"""What is written beside the log so that the next start need not read all of it.

    enq   [[lane, index, expiries and marks], ...]     of one queue or stream, all of the same moment
    ack   [log position up to which returns are counted, [[lane, settled and returns], ...]]
    root  [[name, lane, log position], ...]

Files of queues that have not changed since the last time stay; the root says which ones hold. One that
is newer than the root says holds as well: a crash came between the two, and records applied twice
are as if once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgpack

from ..log.checkpoints import Checkpoint
from ..queues.lane import Lane
from .registry import Registry

Look = tuple[tuple[int, ...], ...]


class Named(NamedTuple):
    """Files of a queue, as the root has them."""

    name: str
    lane: int
    """The first of its lanes."""
    position: int
    """The log position that they are of, or an earlier one."""


class Checkpointing:
    """Which queues of a vhost have changed since they were written down."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[int, tuple[Look, int]] = {}
        """By first lane: how it looked, and at which log position."""

    def take(self, position: int, returns: int) -> tuple[list[Checkpoint], bytes]:
        """What has to be written, of this moment; and the root's extra to be written after it.

        Args:
            position: records before it have been applied, and nothing else.
        """
        changed: list[Checkpoint] = []
        files: list[Named] = []
        written: dict[int, tuple[Look, int]] = {}
        for name, lanes in self._with_messages():
            first, look = lanes[0].id, tuple(map(_look, lanes))
            before = self._written.get(first)
            if before is None or before[0] != look:
                changed.append(_checkpoint(name, lanes, position, returns))
                before = (look, position)
            written[first] = before
            files.append(Named(name, first, before[1]))
        self._written = written
        extra: bytes = msgpack.packb(files)
        return changed, extra

    def _with_messages(self) -> Iterator[tuple[str, list[Lane]]]:
        """Others are empty, and the snapshot says all there is to say of them."""
        registry = self._registry
        for queue in registry.queues.values():
            if queue.logged and any(len(lane.index) for lane in queue.lanes):
                yield queue.name, list(queue.lanes)
        for stream in registry.streams.values():
            if len(stream.lane.index):
                yield stream.name, [stream.lane]


def decode_extra(extra: bytes) -> list[Named]:
    """Raises ValueError, TypeError: no `take` has written this."""
    return [
        Named(str(name), int(lane), int(position))
        for name, lane, position in msgpack.unpackb(extra)
    ]


def load(registry: Registry, checkpoint: Checkpoint) -> dict[int, int]:
    """Fill the lanes of a queue.

    Returns:
        By lane, the log position up to which returns are counted.
    Raises:
        ValueError, TypeError, KeyError: no `take` has written this.
    """
    returns, entries = msgpack.unpackb(bytes(checkpoint.ack))
    settled: dict[int, bytes] = dict(entries)
    enqueued: list[tuple[int, bytes]] = msgpack.unpackb(bytes(checkpoint.enq))
    for lane_id, data in enqueued:
        registry.lane(lane_id).load(data, settled[lane_id])
    return dict.fromkeys(settled, int(returns))


def _checkpoint(name: str, lanes: list[Lane], position: int, returns: int) -> Checkpoint:
    both = [(lane.id, *lane.encode()) for lane in lanes]
    enq = msgpack.packb([(lane, enqueued) for lane, enqueued, _ in both])
    ack = msgpack.packb((returns, [(lane, settled) for lane, _, settled in both]))
    return Checkpoint(name, lanes[0].id, position, enq, ack)


def _look(lane: Lane) -> tuple[int, ...]:
    """Two different states of a lane look different."""
    return (lane.index.end, lane.settled.low, lane.settled.end, lane.changes)
