"""Yielding the processor to a thread that has just been woken.

Linux often queues a woken thread behind the one that woke it, whatever other processors are idle. It then
waits until the trio thread sleeps, and with it a message for libzmq's I/O thread, or a commit for its writer. A
yield lets it run at once, and takes a microsecond where no thread waits.

Where others want the processor a yield may take long. Then none follows for a multiple of that time.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from trio.lowlevel import RunVar

SOON_BYTES = 16 * 1024
"""So much is encrypted and sent in no time. More keeps libzmq busy for longer, while we could do something."""
PAUSE = 5
"""Times as long as a yield took, none follows: at most a sixth of the time goes there. A single message takes
its thread some 30 us, and comes every 150 us at most."""


def _sched_yield() -> Callable[[], object]:
    """That of the C library: the one of `os` keeps the interpreter's lock before Python 3.12, and the thread
    that is to run needs it."""
    if not hasattr(os, "sched_yield"):
        return lambda: None
    yielded: Callable[[], object] = ctypes.CDLL(None).sched_yield
    return yielded


SCHED_YIELD = _sched_yield()


class Yielder:
    """Of one thread: see `of_this_run`."""

    __slots__ = ("_clock", "_not_before", "_sched_yield")

    def __init__(
        self, sched_yield: Callable[[], object] = SCHED_YIELD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._sched_yield, self._clock = sched_yield, clock
        self._not_before = 0.0

    def yield_processor(self) -> None:
        """To whoever waits for it, unless the last time was too long and not long enough ago."""
        began = self._clock()
        if began < self._not_before:
            return
        self._sched_yield()
        ended = self._clock()
        self._not_before = ended + PAUSE * (ended - began)

    def sent(self, size_bytes: int) -> None:
        """So much has been given to libzmq: if it is little, it leaves now."""
        if 0 < size_bytes <= SOON_BYTES:
            self.yield_processor()


_OF_RUN: RunVar[Yielder] = RunVar("yielder")


def of_this_run() -> Yielder:
    """The one of this trio thread: all nodes and logs in it together take no more of its time than one."""
    try:
        return _OF_RUN.get()
    except LookupError:
        yielder = Yielder()
        _OF_RUN.set(yielder)
        return yielder
