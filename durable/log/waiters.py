"""Tasks that wait until log positions are durable."""

from __future__ import annotations

import heapq
from itertools import count

import trio


class Waiters:
    """The tasks that wait for one log."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, trio.Event]] = []
        """Log position, order of arrival, and what its task waits for."""
        self._order = count()

    async def wait(self, position: int) -> None:
        """Return when `wake` is called with an end behind this log position, or with None."""
        event = trio.Event()
        heapq.heappush(self._heap, (position, next(self._order), event))
        await event.wait()

    def wake(self, durable_end: int | None) -> None:
        """Wake the tasks that wait for log positions before this one. None: wake all, because no more will be durable."""
        waiting = self._heap
        while waiting and (durable_end is None or waiting[0][0] < durable_end):
            heapq.heappop(waiting)[2].set()
