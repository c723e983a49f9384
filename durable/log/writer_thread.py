"""A thread that is kept for commits, because handing work to a thread and back takes most of a short commit.

    thread = writer_of(None, disk.syncer())
    thread.start(partial(store.carry_out, commit))  # in place of trio.to_thread.run_sync: begins at once,
    await thread.finish()                           # and may be awaited later, by another task
    thread.close()                                  # it ends when its call has returned

Each `trio.to_thread.run_sync` costs a limiter, a copy of the context and two turns of the scheduler. Here a
call goes out through a queue, and its end comes back through an eventfd, which trio polls anyway.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol

import trio

from mesh.spinning import Spinner, spinner_of_this_run
from mesh.waker import Waker
from mesh.yielding import Yielder, yielder_of_this_run

from .disk import Syncer


class Writer(Protocol):
    """Runs commits, one at a time."""

    def start(self, call: Callable[[], object]) -> None:
        """Begin a call. The one before must be finished."""

    async def finish(self) -> None:
        """Return when a call has ended, or raise what it raised. May be awaited before the call begins.

        If this is cancelled, the call goes on, and no other one may follow.
        """

    def close(self) -> None:
        """Close; returns at once. To be called once, when no task awaits `finish` any more."""


class BorrowedThreads:
    """A Writer that runs each call by `trio.to_thread.run_sync`, or by a test's replacement for it."""

    def __init__(self, in_thread: Callable[..., Awaitable[object]]) -> None:
        self._in_thread = in_thread
        self._call: Callable[[], object] | None = None
        self._started = Waker()

    def start(self, call: Callable[[], object]) -> None:
        assert self._call is None, "one call at a time"
        self._call = call
        self._started.wake()

    async def finish(self) -> None:
        while self._call is None:
            await self._started.wait()
        call, self._call = self._call, None
        await self._in_thread(call, abandon_on_cancel=True)

    def close(self) -> None:
        pass


class WriterThread:
    """A Writer with its own thread. It is used from one trio thread, whose yielder and spinner are passed to it."""

    def __init__(self, yielder: Yielder, spinner: Spinner, syncer: Syncer | None = None) -> None:
        """
        Args:
            syncer: `finish` also returns when its sync has ended. Closed by this object.
        """
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        if syncer is None:
            self._done = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._release: Callable[[], object] = partial(os.close, self._done)
        else:
            self._done, self._release = syncer.eventfd, syncer.close
        self._error: BaseException | None = None
        self._busy = False
        self._yielder, self._spinner = yielder, spinner
        # A daemon thread, because a disk that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._run, name="durable.log writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The system has no threads left.
            self._release()
            raise
        spinner.watch(self._done)

    def start(self, call: Callable[[], object]) -> None:
        assert not self._busy, "one call at a time"
        self._busy = True
        self._calls.put(call)
        self._yielder.yield_processor()

    async def finish(self) -> None:
        await trio.lowlevel.wait_readable(self._done)
        os.eventfd_read(self._done)
        self._busy = False
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        self._spinner.unwatch(self._done)
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                self._error = error
            os.eventfd_write(self._done, 1)
        # Here and not in `close`: a call that hung would write to whatever has this descriptor's number by then.
        self._release()


def writer_of(in_thread: Callable[..., Awaitable[object]] | None, syncer: Syncer | None) -> Writer:
    """Return a writer for a log of this trio run.

    Args:
        in_thread: runs the calls; None: a thread of the writer's own, which also has `syncer`.
    """
    if in_thread is not None:
        return BorrowedThreads(in_thread)
    return WriterThread(yielder_of_this_run(), spinner_of_this_run(), syncer)
