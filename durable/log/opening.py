"""Opens a store in a worker thread that a cancelled task can leave: the disk may hang, or the log be long.

The thread goes on until the disk answers, and to the end of the segment that it reads; the directory stays locked for
as long. If it has opened the store by then, it closes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from ..errors import StoreClosed
from .calls import InThread
from .store import Store


class Opening:
    """The opening of one store. `in_thread` runs it."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._handing_over = threading.Lock()
        self._abandoned = False
        self._store: Store | None = None

    async def open(self, open_it: Callable[[], Store]) -> Store:
        """Run `open_it` in the thread; return what it returns, or raise what it raises."""
        try:
            await self._in_thread(self._run, open_it, abandon_on_cancel=True)
        except BaseException:
            self._abandon()
            raise
        assert self._store is not None, "the thread has ended"
        return self._store

    def check(self) -> None:
        """Called in the thread now and then. Raises StoreClosed if no task waits any more."""
        if self._abandoned:
            self._raise_closed()

    def _run(self, open_it: Callable[[], Store]) -> None:
        store = open_it()
        with self._handing_over:
            if not self._abandoned:
                self._store = store
                return
        store.close()
        self._raise_closed()

    def _abandon(self) -> None:
        with self._handing_over:
            self._abandoned = True
        if self._store is not None:
            self._store.close()

    def _raise_closed(self) -> NoReturn:
        raise StoreClosed("the store was closed while it was being opened")
