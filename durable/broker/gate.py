"""A lock of the definitions: shared by changes that take one turn each, exclusive for one that takes many.

A whole import is checked a little at a time, and what has been checked has to hold until everything is
applied. So an import takes the lock exclusively: tasks that want to declare something meanwhile wait, all
others do not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from mesh.waker import Bell


class Gate:
    """The lock of one vhost. It is fair, but tasks that share it do not wait for each other."""

    def __init__(self) -> None:
        self._exclusive = trio.Lock()
        self._closed = False
        self._opened, self._released = trio.Event(), Bell()
        self._holders = self.waiting = 0
        """Numbers of tasks that hold it shared, and that wait to share it."""

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[None]:
        """Hold the lock shared.

        If nobody holds it exclusively this does not even yield to other tasks, and all tasks that had to
        wait are let in at once: so changes that are asked for in one turn share one commit.
        """
        if self._closed:
            await self._wait()
        else:
            self._holders += 1
        try:
            yield
        finally:
            self._release()

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[None]:
        """Hold the lock exclusively; first wait until all that share it have left."""
        async with self._exclusive:
            self._closed = True
            try:
                while self._holders:
                    await self._released.wait()
                yield
            finally:
                self._open()

    async def _wait(self) -> None:
        """Wait until the lock is open; then this task holds it shared."""
        self.waiting += 1
        opened = self._opened
        try:
            await opened.wait()
        except BaseException:
            if opened.is_set():
                self._release()
            else:
                self.waiting -= 1
            raise

    def _release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._released.wake()

    def _open(self) -> None:
        """Let in all waiting tasks now, even if another task closes the lock before they run."""
        self._closed = False
        self._holders, self.waiting = self._holders + self.waiting, 0
        self._opened.set()
        self._opened = trio.Event()
