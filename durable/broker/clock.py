"""Time that only goes forward: the wall clock once, a monotonic one ever after.

Somebody who sets the clock of a running machine an hour ahead expires no message with it.
"""

from __future__ import annotations

import time


class SteadyClock:
    """Microseconds since 1970, as of the start."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000
