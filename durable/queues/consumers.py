"""The consumers of a queue: the unacked messages and the credit of each, and whose turn it is.

Tags number the messages delivered to one consumer, from 0. Deliveries are kept in the order of their tags,
so a settlement finds its range by bisection, and splits the first and the last delivery if necessary.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import QueueInUse
from .lane import UNLIMITED, Lane
from .runs import Run

_STALE_MIN = 64


class Unacked(NamedTuple):
    """Messages [first, first + count) of `lane`, all of one run; their tags begin with `tag`."""

    tag: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    lane: Lane
    first: int
    run: Run
    size_bytes: int

    def part(self, start: int, end: int) -> Unacked:
        """Return the part with tags in [start, end)."""
        low, high = max(start, self.tag), min(end, self.tag + self.count)
        first = self.first + low - self.tag
        size = self.run.size_of(first, first + high - low)
        return Unacked(low, high - low, self.lane, first, self.run, size)


class Consumer:
    """One consumer of one queue. The code that delivers may set `paused` and both limits."""

    __slots__ = (
        "_removed_count", "_tags", "_unacked", "exclusive", "id", "leaving", "next_tag",
        "paused", "peeks", "prefetch", "prefetch_bytes", "priority", "unacked", "unacked_bytes",
    )  # fmt: skip

    def __init__(
        self, id: str, *, prefetch: int, prefetch_bytes: int, priority: int = 0,  # noqa: A002
        exclusive: bool = False, peeks: bool = False,
    ) -> None:  # fmt: skip
        self.id, self.priority, self.exclusive = id, priority, exclusive
        self.peeks = peeks
        """It only browses: it does not count in whether a queue has lost its last consumer."""
        self.prefetch, self.prefetch_bytes = prefetch, prefetch_bytes
        """Limits of unacked messages and bytes; 0 means no limit."""
        self.paused = False
        """It gets nothing for now, whatever its credit, because its tunnel is full."""
        self.leaving = False
        """It gets nothing any more."""
        self.next_tag = self.unacked = self.unacked_bytes = 0
        self._tags: list[int] = []
        self._unacked: list[Unacked] = []
        self._removed_count = 0  # Settled entries at the front, which are deleted when it is cheap.

    def __repr__(self) -> str:
        return f"<Consumer {self.id} {self.unacked} unacked, next tag {self.next_tag}>"

    def credit(self) -> tuple[int, int]:
        """Return how many messages and bytes it may get. If either is 0, it gets nothing."""
        if self.paused or self.leaving:
            return 0, 0
        count = self.prefetch - self.unacked if self.prefetch else UNLIMITED
        size = self.prefetch_bytes - self.unacked_bytes if self.prefetch_bytes else UNLIMITED
        return max(0, count), max(0, size)

    def add(self, lane: Lane, first: int, count: int, run: Run, size_bytes: int) -> int:
        """Note messages that are being delivered; return the tag of the first one."""
        tag = self.next_tag
        self.next_tag = tag + count
        self._tags.append(tag)
        self._unacked.append(Unacked(tag, count, lane, first, run, size_bytes))
        self.unacked += count
        self.unacked_bytes += size_bytes
        return tag

    def remove(self, start: int, end: int) -> list[Unacked]:
        """Remove the unacked messages under the tags [start, end), and return them."""
        tags, unacked = self._tags, self._unacked
        low = bisect_right(tags, start, self._removed_count) - 1
        if low < self._removed_count or start >= tags[low] + unacked[low].count:
            low += 1
        high = bisect_left(tags, end, low)
        if start >= end or low == high:
            return []
        removed = unacked[low:high]
        first, last = removed[0], removed[-1]
        left, right = first.tag < start, last.tag + last.count > end
        if left or right:
            self._keep_outside(low, high, start, end)
            removed[0] = first.part(start, end)
            if high - low > 1:
                removed[-1] = last.part(start, end)
        elif low == self._removed_count:
            self._removed_count = high
            if high > _STALE_MIN and 2 * high > len(tags):
                self._tidy()
        else:
            del tags[low:high], unacked[low:high]
        self.unacked -= sum(one.count for one in removed)
        self.unacked_bytes -= sum(one.size_bytes for one in removed)
        return removed

    def _keep_outside(self, low: int, high: int, start: int, end: int) -> None:
        """Replace the entries low to high by those parts of them that are outside the tags [start, end)."""
        first, last = self._unacked[low], self._unacked[high - 1]
        kept = [
            one
            for one in (first.part(first.tag, start), last.part(end, last.tag + last.count))
            if one.count > 0
        ]
        self._unacked[low:high] = kept
        self._tags[low:high] = [one.tag for one in kept]

    def _tidy(self) -> None:
        del self._tags[: self._removed_count], self._unacked[: self._removed_count]
        self._removed_count = 0


class Consumers:
    """The consumers of one queue, by priority; consumers of equal priority take turns."""

    __slots__ = ("_count", "_groups", "_single_active", "active")

    def __init__(self, *, single_active: bool) -> None:
        self._single_active = single_active
        self.active: Consumer | None = None
        """The consumer that gets messages, if the queue has a single active consumer."""
        self._groups: dict[int, deque[Consumer]] = {}  # By priority, highest first.
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Consumer]:
        return (one for group in self._groups.values() for one in group)

    def add(self, queue: str, consumer: Consumer) -> None:
        """Add a consumer. Raises QueueInUse if there are others, and it or one of them is exclusive."""
        taken = any(one.exclusive for one in self)
        if self._count and (taken or consumer.exclusive):
            raise QueueInUse(queue, consumer.id, self._count, taken)
        if consumer.priority in self._groups:
            self._groups[consumer.priority].append(consumer)
        else:
            self._groups[consumer.priority] = deque([consumer])
            self._groups = dict(sorted(self._groups.items(), reverse=True))
        if self._single_active and self.active is None:
            self.active = consumer
        self._count += 1

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer that was added. If it was the single active consumer, the next one takes over."""
        group = self._groups[consumer.priority]
        group.remove(consumer)
        self._count -= 1
        if not group:
            del self._groups[consumer.priority]
        if consumer is self.active:
            self.active = next(iter(self), None)

    def share(self, ready: int) -> int:
        """Return how many of `ready` messages one consumer gets at once, so that all that wait get some."""
        if self._single_active or self._count < 2:
            return ready
        first = next(iter(self._groups.values()))
        return -(-ready // len(first))

    def next(self) -> tuple[Consumer, int, int] | None:
        """Return the consumer whose turn it is, and how many messages and bytes it may get at most.

        None if no consumer has credit.
        """
        if self.active is not None:
            count, size = self.active.credit()
            return (self.active, count, size) if count and size else None
        for group in self._groups.values():
            for _ in range(len(group)):
                consumer = group[0]
                count, size = consumer.credit()
                group.rotate(-1)
                if count and size:
                    return consumer, count, size
        return None
