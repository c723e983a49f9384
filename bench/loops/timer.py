"""A timer that is a file descriptor: event loops round their own timeouts up to a millisecond.

Python has it from 3.13 on, as `os.timerfd_create`; until then it is three calls of the C library.
"""

from __future__ import annotations

import ctypes
import os

CLOCK_MONOTONIC = 1
TFD_NONBLOCK, TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
TFD_TIMER_ABSTIME = 1
PR_SET_TIMERSLACK = 29
NS = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Readable from the time it was armed for on. Of the clock of `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))
        # Else the kernel lets waits of this thread run late by 50 us, to save wake-ups.
        _checked(_libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0))

    def arm(self, due_ns: int) -> None:
        """A time that has passed makes it readable at once."""
        value = _Timespec(*divmod(max(due_ns, 1), NS))
        spec = _Itimerspec(_Timespec(0, 0), value)
        _checked(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
