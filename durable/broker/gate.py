"""Who may change what is declared: many, each in a turn of its own; or one, for whom nothing else changes
for many turns.

A whole import is checked a little at a time, and what has been checked has to hold until all of it is
made so. So it is alone: whoever wants to declare something meanwhile waits, and nobody else does.
"""

from __future__ import annotations

from types import TracebackType

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
        self.together, self.alone = _Together(self), _Alone(self)
        """Each for `async with`. Where nobody is alone, `together` does not even give up the turn, and who
        has waited is let in with all others: all that ask in one turn are in one commit."""

    async def _join(self) -> None:
        if not self._closed:
            self._together += 1
            return
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

    async def _close(self) -> None:
        await self._alone.acquire()
        self._closed = True
        try:
            while self._together:
                await self._left.wait()
        except BaseException:
            self._open()
            raise

    def _open(self) -> None:
        """Whoever waits is in from now on, also if somebody closes before it has its turn."""
        self._closed = False
        self._together, self.waiting = self._together + self.waiting, 0
        self._opened.set()
        self._opened = trio.Event()
        self._alone.release()


class _Together:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __aenter__(self) -> None:
        await self._gate._join()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._gate._leave()


class _Alone:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __aenter__(self) -> None:
        await self._gate._close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._gate._open()
