"""Files synced by the kernel alone: no thread of ours waits, so none has to be woken.

Uses Linux AIO (io_submit(2)), whose IOCB_CMD_FDSYNC exists since 4.18; the kernel reports the end to an eventfd.
What this saves: docs/history.md, *A confirm*.

The system calls are made directly, because the C library does not wrap them. The package caio does, but it holds the
interpreter's lock while it destroys a context, which takes 32 ms: when a dozen vhosts had been deleted, a broker
stood still for 0.4 s.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from ctypes import c_int16, c_int64, c_long, c_uint16, c_uint32, c_uint64, c_ulong

from .disk import File, Syncer

Call = Callable[..., int]
SETUP, DESTROY, SUBMIT, GETEVENTS = range(4)
_GENERIC = 0, 1, 2, 4
NUMBERS = {"x86_64": (206, 207, 209, 208), "aarch64": _GENERIC, "riscv64": _GENERIC}
"""Numbers of these system calls, by the machine name of uname(2)."""
FDSYNC = 3
RESFD = 1
"""Flag: `resfd` is an eventfd."""


class _Iocb(ctypes.Structure):
    """See linux/aio_abi.h, for little-endian machines: NUMBERS has no others."""

    _fields_ = (
        ("data", c_uint64), ("key", c_uint32), ("rw_flags", c_uint32), ("opcode", c_uint16),
        ("priority", c_int16), ("descriptor", c_uint32), ("buf", c_uint64), ("size", c_uint64),
        ("offset", c_int64), ("reserved", c_uint64), ("flags", c_uint32), ("resfd", c_uint32),
    )  # fmt: skip


class _Event(ctypes.Structure):
    _fields_ = (("data", c_uint64), ("iocb", c_uint64), ("result", c_int64), ("result2", c_int64))


class KernelSync(Syncer):
    def __init__(self, call: Call) -> None:
        """
        Args:
            call: makes one of the system calls above; returns its result, or -errno.
        Raises:
            OSError: this system has no such calls, or no contexts left.
        """
        self._call = call
        self._context, self._event = c_ulong(), _Event()
        self._under_way = False
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        failed = -call(SETUP, c_long(1), ctypes.byref(self._context))
        if failed:
            os.close(self._eventfd)
            raise OSError(failed, os.strerror(failed))
        self._iocb = _Iocb(opcode=FDSYNC, flags=RESFD, resfd=self._eventfd)
        self._iocbs = ctypes.pointer(self._iocb)

    @property
    def eventfd(self) -> int:
        return self._eventfd

    def begin(self, file: File) -> bool:
        self._iocb.descriptor = file.fileno()
        begun = self._call(SUBMIT, self._context, c_long(1), ctypes.byref(self._iocbs))
        self._under_way = begun == 1
        return self._under_way

    def end(self) -> None:
        self.wait()
        failed = -self._event.result
        if failed:
            raise OSError(failed, os.strerror(failed))

    def wait(self) -> None:
        one = c_long(1)
        while self._under_way:
            got = self._call(
                GETEVENTS, self._context, one, one, ctypes.byref(self._event), c_long(0)
            )
            if got == -errno.EINTR:  # The process was stopped and continued meanwhile.
                continue
            if got != 1:  # It is unknown whether the sync has ended, so nothing may be confirmed.
                raise OSError(-got, os.strerror(-got))
            self._under_way = False

    def close(self) -> None:
        self._call(DESTROY, self._context)
        os.close(self._eventfd)


def _caller(machine: str) -> Call | None:
    """Return a function that makes these system calls; None if their numbers are not known for this machine."""
    numbers = NUMBERS.get(machine)
    if numbers is None or ctypes.sizeof(c_long) != 8:
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = c_long

    def call(which: int, *arguments: object) -> int:
        result = int(syscall(c_long(numbers[which]), *arguments))
        return result if result >= 0 else -ctypes.get_errno()

    return call


_CALL = _caller(os.uname().machine)


def kernel_sync(call: Call | None = _CALL) -> KernelSync | None:
    """Return a new syncer; None if this system has no such calls, or no contexts left."""
    try:
        return None if call is None else KernelSync(call)
    except OSError:
        return None
