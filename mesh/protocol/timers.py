"""Deadlines as data: state machines set them, the shell's clock task sleeps until the earliest."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from math import inf

from ..time_limits import PARTS, next_due


class Timer:
    """One deadline. Cancelling is free; the heap forgets it later."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[float], None]) -> None:
        self.callback: Callable[[float], None] | None = callback

    @property
    def is_over(self) -> bool:
        """Whether its time has come, or it was cancelled."""
        return self.callback is None

    def cancel(self) -> None:
        self.callback = None


NO_TIMER = Timer(lambda now_s: None)
"""A timer that is over: the value of variables for timers while none is set."""
NO_TIMER.cancel()


class Timers:
    """Deadlines in a heap. `on_earlier` is called when the earliest one has become earlier, to wake the clock task."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled_limit = 1024
        self.on_earlier: Callable[[], None] = lambda: None

    def call_at(self, at_s: float, callback: Callable[[float], None]) -> Timer:
        timer = Timer(callback)
        self._set(timer, at_s)
        return timer

    def call_later(self, now_s: float, seconds: float, callback: Callable[[float], None]) -> Timer:
        """Set a deadline in `seconds`, of which a blocked loop uses up one eighth, however long it is blocked
        (see `time_limits`)."""
        part_s, parts_left = seconds / PARTS, PARTS
        due_s = now_s + part_s

        def next_part(now_s: float) -> None:
            nonlocal due_s, parts_left
            parts_left -= 1
            if not parts_left:
                callback(now_s)
                return
            due_s = next_due(due_s, part_s, now_s)
            timer.callback = next_part
            self._set(timer, due_s)

        timer = self.call_at(due_s, next_part)
        return timer

    def _set(self, timer: Timer, at_s: float) -> None:
        heap = self._heap
        is_earliest = not heap or at_s < heap[0][0]
        heapq.heappush(heap, (at_s, next(self._order), timer))
        if len(heap) > self._cancelled_limit:
            self._forget_cancelled()
        if is_earliest:
            self.on_earlier()

    def _forget_cancelled(self) -> None:
        # Without this, timers that are set and cancelled long before they are due would fill the heap.
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._cancelled_limit = max(1024, 2 * len(self._heap))

    def due_s(self) -> float:
        """Return when the earliest timer is due, inf if there is none."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else inf

    def run(self, now_s: float) -> None:
        """Call back everything due; callbacks may set new timers."""
        while self.due_s() <= now_s:
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback(now_s)
