"""A timer as a file descriptor, as event loops round their own timeouts up to a millisecond.

Python 3.13 has `os.timerfd_create`; older versions need three calls of the C library.
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
    """A timer whose descriptor becomes readable at the time it is armed for, on the clock of `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))
        # Otherwise the kernel may delay this thread's wake-ups by 50 us, to combine them.
        _checked(_libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0))

    def arm(self, due_ns: int) -> None:
        """Set the time; one in the past makes the descriptor readable at once."""
        value = _Timespec(*divmod(max(due_ns, 1), NS))
        spec = _Itimerspec(_Timespec(0, 0), value)
        _checked(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
