"""Runs blocking calls in trio's threads; that no thread can be started is an OSError, like other faults of the machine."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


async def run_in_thread(call: Callable[[], T], limiter: trio.CapacityLimiter | None = None) -> T:
    """Return what `call` returns in a thread, which is abandoned when cancelled; it must not raise RuntimeError.

    Raises:
        OSError: no thread can be started, as where a container has used up its processes. It may be possible later.
    """
    try:
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
