"""A stream: messages are kept after they were read, until limits of age, count or size remove them.

Its sequences are called offsets. There are no acks: a reader knows its own offset, and a named cursor is
an offset that the stream keeps for it. Retention removes whole records from the front.
"""

from __future__ import annotations

from ..definitions import StreamDefinition
from ..errors import DurableError
from ..queues.counts import Counts
from ..queues.lane import Lane
from ..queues.runs import Stretch

RUNS_AT_ONCE = 1000
"""Runs that one call of `retain` may drop: 8 ms if all of them differ, next to nothing if they are alike."""


class Stream:
    logged = True

    def __init__(self, definition: StreamDefinition, lane: Lane) -> None:
        self.definition, self.lane = definition, lane
        self.cursors: dict[str, int] = {}
        self.reported_missing: dict[str, int] = {}
        """By cursor, how many missing messages its readers know of; never 0."""
        self.counts = Counts()

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def size_bytes(self) -> int:
        return self.lane.size_bytes

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return self.lane.settled.low

    @property
    def end(self) -> int:
        """The offset behind the last durable message. The next message gets this offset or, while others are
        on their way to the disk, a later one."""
        return max(self.lane.index.end, self.start)

    def lane_for(self, priority: int) -> Lane:
        return self.lane

    def accepts(self, count: int, size_bytes: int) -> bool:
        return True

    def full_error(self) -> DurableError:
        raise AssertionError("a stream is never full")

    def announce(self, lane: Lane, count: int, size_bytes: int) -> int:
        first = lane.next
        lane.next += count
        return first

    def enqueue(
        self, lane: Lane, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0, *, now_us: int,
    ) -> None:  # fmt: skip
        lane.enqueue(first, count, position, size_bytes, time_us)
        self.counts.published += count

    def end_recovery(self) -> None:
        """Recovery has read the whole log. It gave the lane the expiry times of messages, which streams
        ignore; for messages that come live they are not kept."""
        self.lane.ignore_expiries()

    def retain(self, now_us: int, runs_max: int = RUNS_AT_ONCE) -> int:
        """Drop from the front what the limits demand, at most `runs_max` records, and return the number of
        messages dropped. Call again until that is 0."""
        before, end = self.start, self._surplus_end(now_us, runs_max)
        # Otherwise nothing has changed, and settling an empty range would make a checkpoint due.
        if end > before:
            self.lane.settle(before, end)
        return self.start - before

    def _surplus_end(self, now_us: int, runs_max: int) -> int:
        """Return the end of the whole records at the front that are too many, too large together, or too old."""
        size, end = self.size_bytes, self.start
        expired_end = self._expired_end(now_us)
        for one in self.lane.index.stretches(self.start, self.end):
            over = max(self._surplus_runs(one, size), (expired_end - one.first) // one.count)
            removable = one.times - (one.end >= self.end)  # The last record always stays.
            surplus = min(over, removable, runs_max)
            if surplus > 0:
                end = one.first + one.count * surplus
            if surplus < one.times:
                break
            size, runs_max = size - one.size_bytes * surplus, runs_max - surplus
        return end

    def _surplus_runs(self, one: Stretch, size: int) -> int:
        """Return how many runs of a stretch exceed the limits, if `size` is the bytes from its beginning on.
        The result is not clipped: it may be less than 0, or more than the stretch has."""
        over, limits = 0, self.definition
        if limits.max_length is not None:
            over = (self.end - one.first - limits.max_length) // one.count
        if limits.max_length_bytes is not None and size > limits.max_length_bytes:
            surplus = size - limits.max_length_bytes
            over = max(over, -(-surplus // one.size_bytes) if one.size_bytes else one.times)
        return over

    def _expired_end(self, now_us: int) -> int:
        """Return an offset before which all messages are older than `max_age_s`."""
        if self.definition.max_age_s is None:
            return 0
        return self.lane.first_younger(now_us - int(self.definition.max_age_s * 1e6))
