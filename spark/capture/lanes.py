"""Which queue or stream a lane belongs to, according to the declarations in the log.

Applies the changes of durable/vhost/changes.py, of which only names and lanes matter here. What was deleted
is forgotten: its messages belong to nobody, and one declared anew under its name begins without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from durable.vhost.changes import (
    LANES,
    QUEUE,
    QUEUE_GONE,
    SNAPSHOT,
    SNAPSHOT_END,
    STREAM,
    STREAM_GONE,
    Change,
)

ADOPTED_PREFIX = "salvaged."
"""Queues for lanes whose declaration may be lost in a damaged record are named with this prefix and the lane's number,
as `mesh-broker salvage` names them."""


class Lane(NamedTuple):
    """Which FIFO of messages a lane is."""

    queue: str
    """Name of the queue or stream."""
    partition: int
    """The priority, in a queue with priorities; otherwise 0."""
    is_stream: bool


class Lanes:
    """The lanes of one vhost; `apply` takes changes in log order."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Kind of change and lanes, by name: queues and streams share one name space."""
        self._snapshot: set[str] | None = None
        self._ever_declared: set[int] = set()
        """Lanes of everything that was ever declared."""
        self.next_offsets: dict[int, int] = {}
        """By lane, the next offset according to the last snapshot."""
        self._deleted_below = self._next_lane = self._last_position = 0
        self.has_snapshot = False
        """Whether a snapshot was seen from beginning to end."""

    def apply(self, change: Change, position: int) -> None:
        """Apply a change.

        Args:
            position: log position of its record.
        Raises:
            LookupError, TypeError, ValueError: the change is not valid.
        """
        kind = change[0]
        if self._snapshot is not None and position > self._last_position + 1:
            self._snapshot = None  # A record of it is missing, and with it some declarations.
        self._last_position = position
        if kind == QUEUE:
            self._declare(kind, change[2]["name"], change[1])
        elif kind == STREAM:
            self._declare(kind, change[2]["name"], [change[1]])
        elif kind in (QUEUE_GONE, STREAM_GONE):
            self._declared.pop(change[1], None)
        elif kind == SNAPSHOT:
            self._snapshot, self._next_lane = set(), int(change[1])
        elif kind == LANES:
            self.next_offsets.update(
                {int(lane): int(following) for lane, following, _ in change[1]}
            )
        elif kind == SNAPSHOT_END and self._snapshot is not None:
            for name in self._declared.keys() - self._snapshot:
                del self._declared[name]
            self._snapshot, self.has_snapshot = None, True
            self._deleted_below = self._next_lane

    def _declare(self, kind: str, name: str, lanes: Iterable[Any]) -> None:
        self._declared[name] = kind, tuple(map(int, lanes))
        self._ever_declared.update(self._declared[name][1])
        if self._snapshot is not None:
            self._snapshot.add(name)

    def adopt(self, lanes: Iterable[int]) -> None:
        """Declare a queue for each of these lanes that has no declaration, because some have been lost.

        Left out are lanes that a whole snapshot knew and does not declare: those were deleted.
        """
        for lane in sorted(set(lanes) - self._ever_declared):
            if lane >= self._deleted_below:
                self._declare(QUEUE, f"{ADOPTED_PREFIX}{lane}", [lane])

    def all(self) -> dict[int, Lane]:
        """Return all declared lanes by id."""
        return {
            lane: Lane(name, partition, kind == STREAM)
            for name, (kind, lanes) in self._declared.items()
            for partition, lane in enumerate(lanes)
        }
