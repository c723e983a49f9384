"""Yields the processor to a thread that has just been woken.

Linux often queues a woken thread on the processor of the thread that woke it, although others are idle. It then
waits until the trio thread sleeps: libzmq's I/O thread with a message, or a log's writer with a commit. A yield
lets it run at once, and takes a microsecond if no thread waits.

Where other processes want the processor, a yield may take long. Then no other yield is made for a multiple of
that time.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from trio.lowlevel import RunVar

QUICK_BYTES_MAX = 16 * 1024
"""libzmq encrypts and sends up to so much quickly. With more it is busy for longer, and we can work meanwhile."""
PAUSE_FACTOR = 5
"""After a yield none is made for so many times as long as it took, so yields take at most a sixth of the time. A
single message keeps its thread busy for some 30 us, so yields for such messages come at most every 150 us."""


def _sched_yield() -> Callable[[], object]:
    """Return the C library's sched_yield. os.sched_yield keeps the interpreter's lock before Python 3.12, and
    the thread that should run needs that lock."""
    if not hasattr(os, "sched_yield"):
        return lambda: None
    yielded: Callable[[], object] = ctypes.CDLL(None).sched_yield
    return yielded


SCHED_YIELD = _sched_yield()


class Yielder:
    """Yields for one thread; use `yielder_of_this_run`."""

    __slots__ = ("_clock", "_not_before", "_sched_yield")

    def __init__(
        self, sched_yield: Callable[[], object] = SCHED_YIELD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._sched_yield, self._clock = sched_yield, clock
        self._not_before = 0.0

    def yield_processor(self) -> None:
        """Yield, unless the last yield was long and not long enough ago."""
        began = self._clock()
        if began < self._not_before:
            return
        self._sched_yield()
        ended = self._clock()
        self._not_before = ended + PAUSE_FACTOR * (ended - began)

    def sent(self, size_bytes: int) -> None:
        """Yield if the bytes just given to libzmq are few: then its I/O thread sends them now."""
        if 0 < size_bytes <= QUICK_BYTES_MAX:
            self.yield_processor()


_YIELDER: RunVar[Yielder] = RunVar("yielder")


def yielder_of_this_run() -> Yielder:
    """Return the yielder of this trio run, shared so that all its nodes and logs spend no more time than one."""
    try:
        return _YIELDER.get()
    except LookupError:
        yielder = Yielder()
        _YIELDER.set(yielder)
        return yielder
