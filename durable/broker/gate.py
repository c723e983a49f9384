"""Who may change what is declared: many, each in a turn of its own; or one, for whom nothing else changes
for many turns.

A whole import is checked a little at a time, and what has been checked has to hold until all of it is
made so. So it is alone: whoever wants to declare something meanwhile waits, and nobody else does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from mesh.waker import Bell


class Gate:
    """Of one vhost. First come, first served, but those who may be together do not wait for each other."""

    def __init__(self) -> None:
        self._alone = trio.Lock()
        self._closed = False
        self._opened, self._left = trio.Event(), Bell()
        self._together = self.waiting = 0
        """So many are in; wait to be let in together."""

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Where nobody is alone this does not even give up the turn, and who has waited is let in with all
        others: all that ask in one turn are in one commit."""
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
        """Those who are in leave first."""
        async with self._alone:
            self._closed = True
            try:
                while self._together:
                    await self._left.wait()
                yield
            finally:
                self._open()

    async def _wait(self) -> None:
        """Return when it is open, and whoever waits is in."""
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
        """Whoever waits is in from now on, also if somebody closes before it has its turn."""
        self._closed = False
        self._together, self.waiting = self._together + self.waiting, 0
        self._opened.set()
        self._opened = trio.Event()
