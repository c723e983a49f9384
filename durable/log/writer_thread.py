"""A thread that is kept for commits, because the way there and back is most of a short one.

    thread = WriterThread()
    await thread(store.carry_out, commit)      # in place of trio.to_thread.run_sync
    thread.close()                             # it ends when its call has come back

`trio.to_thread.run_sync` costs a limiter, a copy of the context and two turns of the scheduler each
time; here a call goes out by a queue and comes back by an eventfd that trio polls anyway.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import trio


class WriterThread:
    """For one call at a time, from one trio thread."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._done = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._result: Any = None
        self._error: BaseException | None = None
        self._busy = False
        # A daemon: a disk that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name="durable.log writer", daemon=True).start()

    async def __call__(
        self, call: Callable[..., Any], *args: Any, abandon_on_cancel: bool = True
    ) -> Any:
        """`call(*args)` over there. Cancelled, it goes on there, and no other one may follow."""
        assert abandon_on_cancel, "nobody can get a call out of the kernel"
        assert not self._busy, "one call at a time"
        self._busy = True
        self._calls.put((call, args))
        await trio.lowlevel.wait_readable(self._done)
        os.eventfd_read(self._done)
        self._busy = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def close(self) -> None:
        """Returns at once; to be called once, when nobody waits for a call any more."""
        self._calls.put(None)

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            call, args = task
            try:
                self._result = call(*args)
            except BaseException as error:
                self._error = error
            os.eventfd_write(self._done, 1)
        # Here and not in `close`: a call that hung would write to what has this number by then.
        os.close(self._done)
