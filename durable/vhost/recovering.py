"""Filling a lane from a log that may have holes and moved records: in order, whatever order they come in.

Runs that follow each other go straight into the lane. From the first hole on they wait: what is
missing may have been moved behind, and a lane takes no run before its end. `finish` sorts what
waits; a hole that is left then is one for good.
"""

from __future__ import annotations

from array import array
from operator import itemgetter

from ..queues.lane import Lane
from ..queues.settled import Settled


class Recovering:
    """One lane while its log is read."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._waiting = array("Q")
        """Six numbers per run: first, count, position, size, time, when it expires (0: never)."""

    def run(
        self, first: int, count: int, position: int, size_bytes: int, time_us: int, expires_us: int
    ) -> None:
        """A record has these messages. Seen twice, the later log position counts."""
        index = self.lane.index
        known_end = max(index.end, self.lane.settled.low)
        if not self._waiting and index.end <= first <= known_end:
            self.lane.enqueue(first, count, position, size_bytes, time_us, expires_us or None)
        elif first < index.end:
            # Moved, if it is there; else settled, and forgotten: nothing that is needed is missing
            # below the end, or what came after it would be waiting.
            self.lane.move(first, position)
        else:
            self._waiting.extend((first, count, position, size_bytes, time_us, expires_us))

    def finish(self) -> None:
        waiting, lane = self._waiting, self.lane
        runs = zip(*[iter(waiting)] * 6, strict=True)
        for run in sorted(runs, key=itemgetter(0, 2)):
            first, count, position, size, time_us, expires_us = run
            if first < lane.index.end:  # Moved: the same run, standing elsewhere by now.
                lane.move(first, position)
                continue
            lane.enqueue(first, count, position, size, time_us, expires_us or None)
        self._waiting = array("Q")


def settle_as(lane: Lane, settled: Settled) -> None:
    """What a snapshot says is settled in it."""
    for start, end in settled.ranges(0, settled.end):
        lane.settle(start, end, known=True)
