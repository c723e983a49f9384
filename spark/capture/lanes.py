"""Which queue or stream a lane belongs to, by what the log says was declared.

The changes of durable/vhost/changes.py, of which only names and lanes matter here. What was deleted is
forgotten: its messages are nobody's, and one declared anew under its name begins with none.
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

ADOPTED = "salvaged."
"""Lanes of which a damaged record may have told are called so, and by their number: as `mesh-broker
salvage` calls them."""


class Lane(NamedTuple):
    """One FIFO of messages."""

    queue: str
    """Name of the queue or stream."""
    partition: int
    """Of a queue with priorities, the priority; else 0."""
    is_stream: bool


class Lanes:
    """Of one vhost. Fed with changes in log order."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Word and lanes, by name: queues and streams share their names."""
        self._snapshot: set[str] | None = None
        self._seen: set[int] = set()
        """Lanes of all that ever was declared."""
        self.ends: dict[int, int] = {}
        """By lane: the offset that comes next, as far as snapshots tell."""
        self._gone_below = self._next_lane = self._last = 0
        self.whole = False
        """Whether a snapshot was seen from its beginning to its end."""

    def apply(self, change: Change, position: int) -> None:
        """
        Args:
            position: of its record in the log.
        Raises:
            LookupError, TypeError, ValueError: it makes no sense.
        """
        word = change[0]
        if self._snapshot is not None and position > self._last + 1:
            self._snapshot = None  # One of its records is missing, and what that declared.
        self._last = position
        if word == QUEUE:
            self._declare(word, change[2]["name"], change[1])
        elif word == STREAM:
            self._declare(word, change[2]["name"], [change[1]])
        elif word in (QUEUE_GONE, STREAM_GONE):
            self._declared.pop(change[1], None)
        elif word == SNAPSHOT:
            self._snapshot, self._next_lane = set(), int(change[1])
        elif word == LANES:
            self.ends.update({int(lane): int(following) for lane, following, _ in change[1]})
        elif word == SNAPSHOT_END and self._snapshot is not None:
            for name in self._declared.keys() - self._snapshot:
                del self._declared[name]
            self._snapshot, self.whole = None, True
            self._gone_below = self._next_lane

    def _declare(self, word: str, name: str, lanes: Iterable[Any]) -> None:
        self._declared[name] = word, tuple(map(int, lanes))
        self._seen.update(self._declared[name][1])
        if self._snapshot is not None:
            self._snapshot.add(name)

    def adopt(self, lanes: Iterable[int]) -> None:
        """Declarations are lost: what nobody declared was declared in those.

        But for lanes that a whole snapshot knew and does not declare: they are deleted.
        """
        for lane in sorted(set(lanes) - self._seen):
            if lane >= self._gone_below:
                self._declare(QUEUE, f"{ADOPTED}{lane}", [lane])

    def all(self) -> dict[int, Lane]:
        """By lane id."""
        return {
            lane: Lane(name, partition, word == STREAM)
            for name, (word, lanes) in self._declared.items()
            for partition, lane in enumerate(lanes)
        }
