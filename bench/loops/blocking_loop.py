"""The loop for clients that block or have threads of their own: epoll on the timer and on the watched descriptors."""

from __future__ import annotations

import select
from collections.abc import Callable, Coroutine
from typing import Any

from .loop import Loop, Receive, T, run_driven
from .timer import Timer


class BlockingLoop(Loop):
    def __init__(self) -> None:
        self._timer, self._epoll = Timer(), select.epoll()
        self._receive: dict[int, Receive] = {}
        self._epoll.register(self._timer.fd, select.EPOLLIN)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return run_driven(main)

    async def until(self, due_ns: int) -> None:
        timer_fd, receive = self._timer.fd, self._receive
        self._timer.arm(due_ns)
        due = False
        while not due:
            for fd, _ in self._epoll.poll():
                if fd == timer_fd:
                    due = True
                else:
                    receive[fd]()

    def watch(self, fd: int, receive: Receive) -> None:
        self._receive[fd] = receive
        self._epoll.register(fd, select.EPOLLIN)
