"""Fills a lane in the order of its messages, from a log that may have holes and moved records.

A lane takes no run that begins before its end. So runs that follow each other go straight into the lane;
from the first hole on they wait, because compaction may have moved the missing run to a later place in the
log. `finish` puts the waiting runs in order; a hole that is left then is final.

Waiting runs are nearly in order, because both the published ones and those that one compaction moved are
in order. They are kept in a few rows, each in order, which are merged at the end: 48 bytes a run, and
little more while merging.
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
"""Numbers per run: first, count, position, size, time, time of expiry (0: never)."""


class LaneRecovery:
    """One lane while its log is read."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._waiting: list[array[int]] = []
        """Rows of runs, each in order; the last sequences of the rows fall from row to row."""
        self.missing = 0
        """Messages in holes that are not known to be settled."""
        self.is_contradictory = False
        """Whether a record contradicts the others: a loaded checkpoint is of another log, as after half a
        backup."""

    def add_run(
        self, first: int, count: int, position: int, size_bytes: int, time_us: int, expires_us: int
    ) -> None:
        """A record has these messages. If the run is read twice, the later log position counts.

        Raises:
            ValueError: numbers that no broker writes.
        """
        if first >= LIMIT or time_us >= LIMIT or expires_us >= LIMIT:
            raise ValueError(
                f"invalid numbers: message {first} at {time_us} us, expiring at {expires_us} us"
            )
        if self._continues(first):
            self.lane.enqueue(first, count, position, size_bytes, time_us, expires_us)
        elif first < self.lane.index.end:
            # The record was moved, if the lane has the run; otherwise the run is settled and forgotten. It
            # cannot be an unsettled run that is missing: the runs behind that one would be waiting.
            self._move(first, position)
        else:
            self._row_for(first).extend((first, count, position, size_bytes, time_us, expires_us))

    def add_all(self, arrivals: Arrivals) -> None:
        """Do what `add_run` does for each of these runs, whose numbers have been checked."""
        if self._continues(arrivals.firsts[0]):
            self.lane.enqueue_all(arrivals)
        else:
            for run in arrivals.runs():
                self.add_run(*run)

    def _continues(self, first: int) -> bool:
        """Whether every message before `first` is there or settled."""
        end = self.lane.index.end
        return not self._waiting and end <= first <= max(end, self.lane.settled.low)

    def _move(self, first: int, position: int) -> None:
        try:
            self.lane.move(first, position)
        except ValueError:
            self.is_contradictory = True

    def _row_for(self, first: int) -> array[int]:
        """Return the row to append the run to. The choice is that of patience sorting, which needs the fewest
        rows."""
        at = bisect_left(self._waiting, -first, key=lambda one: -one[-FIELDS])
        if at == len(self._waiting):
            self._waiting.append(array("Q"))
        return self._waiting[at]

    def finish(self) -> None:
        lane = self.lane
        for run in merge(*map(_runs, self._waiting), key=itemgetter(0, 2)):
            first, _, position, *_ = run
            # Moved: the lane has the run already, at another log position.
            if first < lane.index.end:
                self._move(first, position)
                continue
            self.missing += lane.settled.count_unsettled(lane.index.end, first)
            lane.enqueue(*run)
        self._waiting = []


def _runs(row: array[int]) -> Iterator[tuple[int, ...]]:
    return zip(*[iter(row)] * FIELDS, strict=True)


def settle_recorded(lane: Lane, ranges: Iterable[tuple[int, int]]) -> None:
    """Settle ranges that the log or a checkpoint says are settled."""
    for start, end in ranges:
        lane.settle(start, end, recorded=True)
