"""Expiry of the requests of one node, by one timer for all of them.

Nearly every request ends long before it expires, and a timer of its own would mean five objects created
and thrown away for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from .request import Pending
from .timers import NO_TIMER, Timers

HEAP_ENTRIES_MIN = 4096
"""The heap is cleared of ended requests when it has more entries than this, and twice those that are live."""


class Expiries:
    """Calls `expire` with each request that expires."""

    __slots__ = ("_due_s", "_expire", "_heap", "_heap_max", "_pending", "_timer", "_timers")

    def __init__(
        self, pending: Mapping[int, Pending], timers: Timers,
        expire: Callable[[Pending, float], object],
    ) -> None:  # fmt: skip
        """
        Args:
            pending: requests under way, by id, kept by the caller; no others expire.
        """
        self._pending, self._timers, self._expire = pending, timers, expire
        self._heap: list[tuple[float, int]] = []
        """(time in seconds, request id); entries of ended requests stay until the heap is cleared."""
        self._heap_max = HEAP_ENTRIES_MIN
        self._due_s, self._timer = math.inf, NO_TIMER

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_s: float, ident: int) -> None:
        heappush(self._heap, (at_s, ident))
        if at_s < self._due_s or len(self._heap) > self._heap_max:
            self._reset_timer()

    def _reset_timer(self) -> None:
        """Clear the heap if it is too long, and set the timer to the first expiry unless it runs before that."""
        heap = self._heap
        if len(heap) > self._heap_max:
            heap[:] = [entry for entry in heap if entry[1] in self._pending]
            heapify(heap)
            self._heap_max = max(HEAP_ENTRIES_MIN, 2 * len(heap))
        while heap and heap[0][1] not in self._pending:
            heappop(heap)
        if heap and heap[0][0] < self._due_s:
            self._timer.cancel()
            self._due_s = heap[0][0]
            self._timer = self._timers.call_at(self._due_s, self._run)

    def _run(self, now_s: float) -> None:
        self._due_s = math.inf
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            pending = self._pending.get(heappop(heap)[1])
            if pending is not None:
                self._expire(pending, now_s)
        self._reset_timer()
