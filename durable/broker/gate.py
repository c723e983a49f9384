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
        self._alone = trio.Lock()
        self._closed = False
        self._opened, self._left = trio.Event(), Bell()
        self._together = self.waiting = 0
        """Numbers of tasks that hold it shared, and that wait to share it."""

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Hold the lock shared.

        If nobody holds it exclusively this does not even yield to other tasks, and all tasks that had to
        wait are let in at once: so changes that are asked for in one turn share one commit.
        """
        if self._closed:
            await self._wait()
        else:
            self._together += 1
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Hold the lock exclusively; first wait until all that share it have left."""
        async with self._alone:
            self._closed = True
            try:
                while self._together:
                    await self._left.wait()
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
                self._leave()
            else:
                self.waiting -= 1
            raise

    def _leave(self) -> None:
        self._together -= 1
        if not self._together:
            self._left.wake()

    def _open(self) -> None:
        """Let in all waiting tasks now, even if another task closes the lock before they run."""
        self._closed = False
        self._together, self.waiting = self._together + self.waiting, 0
        self._opened.set()
        self._opened = trio.Event()
