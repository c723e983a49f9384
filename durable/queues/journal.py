"""Effects of queue operations that have to be logged or carried out, gathered until the vhost takes them.

All lanes whose records are in one log share a journal. Lanes of memory queues have a journal of their own,
because their log positions mean something else.
"""

from __future__ import annotations

from typing import NamedTuple

from .block import Block
from .runs import Records

EXPIRED, REJECTED = "expired", "rejected"
MAXLEN, DELIVERY_LIMIT = "maxlen", "delivery_limit"
UNREADABLE = "unreadable"
"""A reason for dropping only: unreadable messages are never dead-lettered."""

Spans = list[tuple[int, int]]


class DeadRange(NamedTuple):
    """Messages [start, end) that left `queue` for `reason` and are to be dead-lettered.

    They are neither ready nor unacked until `queue.settle_dead` is called.
    """

    queue: str
    lane: int
    start: int
    end: int
    reason: str


class Journal:
    __slots__ = ("dead", "released", "returned", "settled")

    def __init__(self) -> None:
        self.settled: dict[int, Spans] = {}
        """Per lane: settled messages."""
        self.returned: dict[int, Spans] = {}
        """Per lane: messages that came back; a range that came back twice is in it twice."""
        self.released: list[Records | Block] = []
        """Log positions of runs whose messages are all settled: the lane does not refer to them any more."""
        self.dead: list[DeadRange] = []

    def __bool__(self) -> bool:
        """Whether there is anything to log or to release; `dead` does not count, others handle it."""
        return bool(self.settled or self.returned or self.released)

    def take_settled(self) -> tuple[dict[int, Spans], dict[int, Spans]]:
        """Return what was settled and what came back since the last call."""
        taken = self.settled, self.returned
        self.settled, self.returned = {}, {}
        return taken

    def take_released(self) -> list[Records | Block]:
        released, self.released = self.released, []
        return released

    def take_dead(self) -> list[DeadRange]:
        dead, self.dead = self.dead, []
        return dead

    def forget(self, lane: int) -> None:
        """Drop all entries of a lane that was deleted: the logged deletion covers its messages."""
        self.settled.pop(lane, None)
        self.returned.pop(lane, None)
        self.dead = [one for one in self.dead if one.lane != lane]

    def note_settled(self, lane: int, start: int, end: int) -> None:
        _add(self.settled, lane, start, end)

    def note_returned(self, lane: int, start: int, end: int) -> None:
        _add(self.returned, lane, start, end)

    def note_dead(self, queue: str, lane: int, start: int, end: int, reason: str) -> None:
        last = self.dead[-1] if self.dead else None
        if last is not None and (last.queue, last.lane, last.end, last.reason) == (
            queue, lane, start, reason,
        ):  # fmt: skip
            self.dead[-1] = last._replace(end=end)
        else:
            self.dead.append(DeadRange(queue, lane, start, end, reason))


def _add(spans_by_lane: dict[int, Spans], lane: int, start: int, end: int) -> None:
    spans = spans_by_lane.get(lane)
    if spans is None:
        spans_by_lane[lane] = [(start, end)]
        return
    first, last = spans[-1]
    if last == start:
        spans[-1] = (first, end)
    elif end == first:
        spans[-1] = (start, last)
    else:
        spans.append((start, end))
