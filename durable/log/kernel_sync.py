"""Syncing a file by the kernel alone: no thread of ours waits for it, and none has to be woken.

Linux AIO (io_submit(2)), whose IOCB_CMD_FDSYNC is there since 4.18; the kernel tells the end to an eventfd. What
that saves: docs/history.md, *A confirm*.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from .disk import File, Syncer

if TYPE_CHECKING:
    from caio import linux_aio


class KernelSync(Syncer):
    def __init__(self, aio: Any) -> None:
        """Raises OSError, SystemError: this system has no more of them."""
        self._operation: type[linux_aio.Operation] = aio.Operation
        self._context: linux_aio.Context = aio.Context(1)
        os.set_inheritable(self.told, False)
        self._results: list[int] = []

    @property
    def told(self) -> int:
        return self._context.fileno

    def begin(self, file: File) -> bool:
        sync = self._operation.fdsync(file.fileno())
        sync.set_callback(self._results.append)
        try:
            return self._context.submit(sync) == 1
        except (
            OverflowError,
            ValueError,
            SystemError,
        ):  # What caio makes of EAGAIN, EINVAL and the others.
            return False

    def end(self) -> None:
        self._context.process_events(1)
        error = -self._results.pop() % 2**64  # It comes without its sign.
        if error:
            raise OSError(error, os.strerror(error))

    def outlast(self) -> None:
        while not self._results:
            try:
                self._context.process_events(1, 1, -1)
            except SystemError as error:
                if error.args[0] != errno.EINTR:  # The process was stopped, and goes on.
                    raise


@cache
def _linux_aio() -> Any:
    """None: it is not installed, or this kernel has nothing of the kind."""
    try:
        from caio import linux_aio  # Takes 60 ms, and is for stores on a disk only.
    except ImportError:
        return None
    return linux_aio


def kernel_sync() -> KernelSync | None:
    """None: this system has none, or no more of them."""
    aio = _linux_aio()
    try:
        return None if aio is None else KernelSync(aio)
    except (OSError, SystemError):
        return None
