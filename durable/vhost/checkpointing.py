"""What is written beside the log so that the next start need not read all of it.

    enq   [[lane, index, expiries and marks], ...]     of one queue or stream, all of the same moment
    ack   [[lane, settled and returns], ...]
    root  {"files": [[name, lane, log position], ...], "returns": log position}

Files of queues that have not changed since the last time stay; the root says which ones hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from ..log.checkpoints import Checkpoint
from ..queues.lane import Lane
from .registry import Registry

Look = tuple[tuple[int, ...], ...]


class RootExtra(NamedTuple):
    files: list[tuple[str, int, int]]
    """Name, first lane and log position of each queue that has files."""
    returns: int
    """Returns up to this log position are counted in the files."""


class Checkpointing:
    """Which queues of a vhost have changed since they were written down."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[int, tuple[Look, int]] = {}
        """By first lane: how it looked, and at which log position."""

    def loaded(self, files: list[tuple[str, int, int]]) -> None:
        """These were read and hold; nothing has changed yet that the log does not say."""
        self._written = {lane: ((), position) for _, lane, position in files}

    def take(self, position: int, returns: int) -> tuple[list[Checkpoint], bytes]:
        """What has to be written, of this moment; and the root's extra to be written after it.

        Args:
            position: records before it have been applied, and nothing else.
        """
        changed: list[Checkpoint] = []
        files: list[tuple[str, int, int]] = []
        written: dict[int, tuple[Look, int]] = {}
        for name, lanes in self._with_messages():
            first, look = lanes[0].id, tuple(map(_look, lanes))
            before = self._written.get(first)
            if before is None or before[0] != look:
                changed.append(_checkpoint(name, lanes, position))
                before = (look, position)
            written[first] = before
            files.append((name, first, before[1]))
        self._written = written
        extra: bytes = msgpack.packb({"files": files, "returns": returns})
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


def decode_extra(extra: bytes) -> RootExtra:
    """Raises ValueError, TypeError, KeyError: no `take` has written this."""
    value: dict[str, Any] = msgpack.unpackb(extra)
    files = [(str(name), int(lane), int(position)) for name, lane, position in value["files"]]
    return RootExtra(files, int(value["returns"]))


def load(registry: Registry, checkpoint: Checkpoint) -> None:
    """Fill the lanes of a queue. Raises ValueError, TypeError: no `take` has written this."""
    settled = dict(msgpack.unpackb(bytes(checkpoint.ack), strict_map_key=False))
    for lane_id, enqueued in msgpack.unpackb(bytes(checkpoint.enq)):
        registry.lane(lane_id).load(enqueued, settled[lane_id])


def _checkpoint(name: str, lanes: list[Lane], position: int) -> Checkpoint:
    both = [(lane.id, *lane.encode()) for lane in lanes]
    enq = msgpack.packb([(lane, enqueued) for lane, enqueued, _ in both])
    ack = msgpack.packb([(lane, settled) for lane, _, settled in both])
    return Checkpoint(name, lanes[0].id, position, enq, ack)


def _look(lane: Lane) -> tuple[int, ...]:
    """Two different states of a lane look different."""
    return (lane.index.end, lane.settled.low, lane.settled.end, lane.changes)
