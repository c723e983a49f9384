"""Filling a lane from a log that may have holes and moved records: in order, whatever order they come in.

Runs that follow each other go straight into the lane. From the first hole on they wait: what is
missing may have been moved behind, and a lane takes no run before its end. `finish` puts what waits
in order; a hole that is left then is one for good.

What waits is nearly in order: what was published is, and so is what one compaction moved. So it is kept
in a few rows, each in order, and these are merged: 48 bytes a run, and hardly more when they are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter

from ..queues.arrivals import Arrivals
from ..queues.block import LIMIT
from ..queues.lane import Lane

FIELDS = 6
"""Numbers per run: first, count, position, size, time, when it expires (0: never)."""


class Recovering:
    """One lane while its log is read."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._waiting: list[array[int]] = []
        """Rows of runs, each in order; where they end falls from row to row."""
        self.missing = 0
        """Messages in holes, not known to be settled."""
        self.strange = False
        """A record does not go with the others: what was loaded is of another log, as after half a backup."""

    def run(
        self, first: int, count: int, position: int, size_bytes: int, time_us: int, expires_us: int
    ) -> None:
        """A record has these messages. Seen twice, the later log position counts.

        Raises:
            ValueError: numbers that no broker gives.
        """
        if first >= LIMIT or time_us >= LIMIT or expires_us >= LIMIT:
            raise ValueError(f"message {first} of {time_us} us, to expire at {expires_us}")
        if self._goes_on(first):
            self.lane.enqueue(first, count, position, size_bytes, time_us, expires_us)
        elif first < self.lane.index.end:
            # Moved, if it is there; else settled, and forgotten: nothing that is needed is missing
            # below the end, or what came after it would be waiting.
            self._move(first, position)
        else:
            self._row(first).extend((first, count, position, size_bytes, time_us, expires_us))

    def all(self, arrivals: Arrivals) -> None:
        """As `run` of each of these, whose numbers are in their limits."""
        if self._goes_on(arrivals.firsts[0]):
            self.lane.enqueue_all(arrivals)
        else:
            for run in arrivals.each():
                self.run(*run)

    def _goes_on(self, first: int) -> bool:
        """Whether nothing is missing before this sequence that is not settled."""
        end = self.lane.index.end
        return not self._waiting and end <= first <= max(end, self.lane.settled.low)

    def _move(self, first: int, position: int) -> None:
        try:
            self.lane.move(first, position)
        except ValueError:
            self.strange = True

    def _row(self, first: int) -> array[int]:
        """The one that this run goes behind: as in patience, so that they are as few as can be."""
        at = bisect_left(self._waiting, -first, key=lambda one: -one[-FIELDS])
        if at == len(self._waiting):
            self._waiting.append(array("Q"))
        return self._waiting[at]

    def finish(self) -> None:
        lane = self.lane
        for run in merge(*map(_runs, self._waiting), key=itemgetter(0, 2)):
            first, _, position, *_ = run
            if first < lane.index.end:  # Moved: the same run, standing elsewhere by now.
                self._move(first, position)
                continue
            self.missing += lane.settled.count_unsettled(lane.index.end, first)
            lane.enqueue(*run)
        self._waiting = []


def _runs(row: array[int]) -> Iterator[tuple[int, ...]]:
    return zip(*[iter(row)] * FIELDS, strict=True)


def settle_known(lane: Lane, ranges: Iterable[tuple[int, int]]) -> None:
    """So the log says, or a checkpoint."""
    for start, end in ranges:
        lane.settle(start, end, known=True)
