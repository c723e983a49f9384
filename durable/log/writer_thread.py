"""A thread that is kept for commits, because the way there and back is most of a short one.

    thread = writer_of(None, disk.syncer())
    thread.start(partial(store.carry_out, commit))  # in place of trio.to_thread.run_sync: at once,
    await thread.finish()                           # and who waits for it may come later
    thread.close()                                  # it ends when its call has come back

`trio.to_thread.run_sync` costs a limiter, a copy of the context and two turns of the scheduler each
time; here a call goes out by a queue and comes back by an eventfd that trio polls anyway.
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
from mesh.yielding import Yielder, of_this_run

from .disk import Syncer


class Writer(Protocol):
    """Where commits are carried out."""

    def start(self, call: Callable[[], object]) -> None:
        """Begin it; the one before is finished."""

    async def finish(self) -> None:
        """Return when a call has ended, or raise what it raised; may be waited for before it begins.

        Cancelled, the call goes on, and no other one may follow.
        """

    def close(self) -> None:
        """Returns at once; to be called once, when nobody waits any more."""


class BorrowedThreads:
    """A Writer that runs each call as `trio.to_thread.run_sync` would, or what a test has instead."""

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
    """A Writer; from one trio thread, whose yielder and spinner are given."""

    def __init__(self, yielder: Yielder, spinner: Spinner, syncer: Syncer | None = None) -> None:
        """
        Args:
            syncer: ends what `finish` waits for, too. It is closed here.
        """
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        if syncer is None:
            self._done = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._let_go: Callable[[], object] = partial(os.close, self._done)
        else:
            self._done, self._let_go = syncer.told, syncer.close
        self._error: BaseException | None = None
        self._busy = False
        self._yielder, self._spinner = yielder, spinner
        # A daemon: a disk that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._run, name="durable.log writer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # There are no more of them.
            self._let_go()
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
        # Here and not in `close`: a call that hung would write to what has this number by then.
        self._let_go()


def writer_of(in_thread: Callable[..., Awaitable[object]] | None, syncer: Syncer | None) -> Writer:
    """For a log of this trio run. `in_thread`: what runs its calls, in place of a thread of its own, which has `syncer`."""
    if in_thread is not None:
        return BorrowedThreads(in_thread)
    return WriterThread(of_this_run(), spinner_of_this_run(), syncer)
