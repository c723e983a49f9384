"""A stream: messages kept after they were read, until age, count or size says otherwise.

Its sequences are called offsets. Nobody acknowledges: readers are where they are, and named cursors
are numbers kept for them. What retention drops goes from the front, record by record.
"""

from __future__ import annotations

from ..definitions import StreamDefinition
from ..errors import DurableError
from ..queues.counts import Counts
from ..queues.lane import Lane
from ..queues.runs import Stretch

RUNS_AT_ONCE = 1000
"""Dropped in one turn: 8 ms where none of them is like the one before it, else next to nothing."""


class Stream:
    logged = True

    def __init__(self, definition: StreamDefinition, lane: Lane) -> None:
        self.definition, self.lane = definition, lane
        self.cursors: dict[str, int] = {}
        self.told: dict[str, int] = {}
        """By cursor, how many missing messages its readers know of; none is 0."""
        self.counts = Counts()

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def size_bytes(self) -> int:
        return self.lane.size_bytes

    @property
    def start(self) -> int:
        """The first offset there is."""
        return self.lane.settled.low

    @property
    def end(self) -> int:
        """Behind the last message that is durable: the offset of the next one, or less than that."""
        return max(self.lane.index.end, self.start)

    def lane_for(self, priority: int) -> Lane:
        return self.lane

    def accepts(self, count: int, size_bytes: int) -> bool:
        return True

    def full(self) -> DurableError:
        raise AssertionError("a stream is never full")

    def expect(self, lane: Lane, count: int, size_bytes: int) -> int:
        first = lane.next
        lane.next += count
        return first

    def enqueue(
        self, lane: Lane, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0, *, now_us: int,
    ) -> None:  # fmt: skip
        lane.enqueue(first, count, position, size_bytes, time_us)
        self.counts.published += count

    def recovered(self) -> None:
        """All of the log is read, which gave the lane what messages say of their expiry; of those that come live
        it is not kept."""
        self.lane.never_expires()

    def retain(self, now_us: int, runs_max: int = RUNS_AT_ONCE) -> int:
        """Drop from the front what the limits say, so many records at most; the number of messages
        dropped. To be called again until that is 0."""
        before, end = self.start, self._surplus_end(now_us, runs_max)
        if end > before:  # Else nothing has changed, and no checkpoint is due.
            self.lane.settle(before, end)
        return self.start - before

    def _surplus_end(self, now_us: int, runs_max: int) -> int:
        """Up to where whole records at the front are too many, too large together, or too old."""
        size, end = self.size_bytes, self.start
        too_old = self._older_than(now_us)
        for one in self.lane.index.stretches(self.start, self.end):
            over = max(self._over(one, size), (too_old - one.first) // one.count)
            there = one.times - (one.end >= self.end)  # The last record stays.
            surplus = min(over, there, runs_max)
            if surplus > 0:
                end = one.first + one.count * surplus
            if surplus < one.times:
                break
            size, runs_max = size - one.size_bytes * surplus, runs_max - surplus
        return end

    def _over(self, one: Stretch, size: int) -> int:
        """How many runs of a stretch are more than the limits allow, with so many bytes from there on;
        more than it has, or less than 0, where that is how it comes out."""
        over, limits = 0, self.definition
        if limits.max_length is not None:
            over = (self.end - one.first - limits.max_length) // one.count
        if limits.max_length_bytes is not None and size > limits.max_length_bytes:
            surplus = size - limits.max_length_bytes
            over = max(over, -(-surplus // one.size_bytes) if one.size_bytes else one.times)
        return over

    def _older_than(self, now_us: int) -> int:
        """All offsets before this one are older than `max_age_s`."""
        if self.definition.max_age_s is None:
            return 0
        return self.lane.younger_than(now_us - int(self.definition.max_age_s * 1e6))
