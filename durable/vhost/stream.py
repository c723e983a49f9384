"""A stream: messages kept after they were read, until age, count or size says otherwise.

Its sequences are called offsets. Nobody acknowledges: readers are where they are, and named cursors
are numbers kept for them. What retention drops goes from the front, record by record.
"""

from __future__ import annotations

from ..definitions import StreamDefinition
from ..errors import DurableError
from ..queues.counts import Counts
from ..queues.index import Run
from ..queues.lane import Lane


class Stream:
    logged = True

    def __init__(self, definition: StreamDefinition, lane: Lane) -> None:
        self.definition, self.lane = definition, lane
        self.cursors: dict[str, int] = {}
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
        """The offset that the next durable message gets."""
        return self.lane.index.end

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
        expires_us: int | None = None, *, now_us: int,
    ) -> None:  # fmt: skip
        lane.enqueue(first, count, position, size_bytes, time_us)
        self.counts.published += count

    def offset_at(self, time_us: int) -> int:
        """The first offset whose message may have come at this time or later."""
        return self.lane.came_later_than(time_us - 1)

    def retain(self, now_us: int) -> int:
        """Drop from the front what the limits say; the number of messages dropped."""
        before = self.start
        for run in self._surplus(now_us):
            self.lane.settle(run.first, run.first + run.count)
        return self.start - before

    def _surplus(self, now_us: int) -> list[Run]:
        """Whole records at the front that are too many, too large together, or too old."""
        limits, surplus = self.definition, []
        count, size = self.end - self.start, self.size_bytes
        too_old = self._older_than(now_us)
        for run in self.lane.index.runs(self.start, self.end):
            over = (
                (limits.max_length is not None and count - run.count >= limits.max_length)
                or (limits.max_length_bytes is not None and size > limits.max_length_bytes)
                or run.first + run.count <= too_old
            )
            if not over or run.first + run.count >= self.end:  # The last record stays.
                break
            surplus.append(run)
            count, size = count - run.count, size - run.size_bytes
        return surplus

    def _older_than(self, now_us: int) -> int:
        """All offsets before this one are older than `max_age_s`."""
        if self.definition.max_age_s is None:
            return 0
        return self.lane.younger_than(now_us - int(self.definition.max_age_s * 1e6))
