"""The loop for trio clients, such as the mesh."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import trio

from .loop import Loop, Receive, T
from .timer import Timer


class TrioLoop(Loop):
    def __init__(self) -> None:
        self._timer = Timer()

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return trio.run(main)

    async def until(self, due_ns: int) -> None:
        self._timer.arm(due_ns)
        await trio.lowlevel.wait_readable(self._timer.fd)

    def watch(self, fd: int, receive: Receive) -> None:
        async def watching() -> None:
            while True:
                await trio.lowlevel.wait_readable(fd)
                receive()

        trio.lowlevel.spawn_system_task(watching)
