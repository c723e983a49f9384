"""A clock that only goes forward: the wall clock at the start, plus a monotonic clock.

So setting the clock of a running machine an hour ahead expires no messages.
"""

from __future__ import annotations

import time


class SteadyClock:
    """Microseconds since 1970, by the wall clock at the start and a monotonic clock since."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000
