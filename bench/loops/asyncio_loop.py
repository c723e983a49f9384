"""The loop for asyncio clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .loop import Loop, Receive, T
from .timer import Timer


class AsyncioLoop(Loop):
    def __init__(self) -> None:
        self._timer = Timer()
        self._due: asyncio.Future[None] | None = None

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def started() -> T:
            asyncio.get_running_loop().add_reader(self._timer.fd, self._tell)
            return await main()

        return asyncio.run(started())

    async def until(self, due_ns: int) -> None:
        self._due = asyncio.get_running_loop().create_future()
        self._timer.arm(due_ns)
        await self._due

    def _tell(self) -> None:
        self._timer.arm(_NEVER_NS)
        if self._due is not None and not self._due.done():
            self._due.set_result(None)

    def watch(self, fd: int, receive: Receive) -> None:
        asyncio.get_running_loop().add_reader(fd, receive)


_NEVER_NS = 1 << 62
"""Re-arming the timer for this time makes it unreadable again, which saves the call that would read it."""
