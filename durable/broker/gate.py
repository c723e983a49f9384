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
        self._together = 0
        self._left = Bell()
        self.together, self.alone = _Together(self), _Alone(self)
        """Each for `async with`. Where nobody is alone, `together` does not even give up the turn: all
        that ask in one turn are in one commit."""

    async def _join(self) -> None:
        if self._alone.locked():
            async with self._alone:
                self._together += 1
        else:
            self._together += 1

    def _leave(self) -> None:
        self._together -= 1
        if not self._together:
            self._left.wake()

    async def _close(self) -> None:
        await self._alone.acquire()
        try:
            while self._together:
                await self._left.wait()
        except BaseException:
            self._alone.release()
            raise

    def _open(self) -> None:
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
