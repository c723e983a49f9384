"""Calls of a store in worker threads, known until they have come back: also where nobody waits any more.

A thread in the kernel cannot be got out of it. So who is cancelled leaves, and the call goes on: as long as it does, its files stay
open, and the directory stays locked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from trio.lowlevel import TrioToken, current_trio_token

from mesh.waker import Bell

InThread = Callable[..., Awaitable[Any]]
"""`trio.to_thread.run_sync`, or what a test has instead."""


class _Call:
    """Written by its task and by its thread: whichever comes second sees what the other one has set."""

    __slots__ = ("back", "begun", "kind", "left")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.begun = self.back = self.left = False
        """Its thread has it; has done it. Nobody waits for it any more."""


class Calls:
    """Of one log."""

    def __init__(self, in_thread: InThread, changed: Bell) -> None:
        """
        Args:
            in_thread: runs them.
            changed: rung when one has come back that nobody waited for.
        """
        self.in_thread = in_thread
        self._changed = changed
        self._under_way: set[_Call] = set()
        self.writing = False
        """Whether a commit, which has a thread of its own, has not come back."""

    def __len__(self) -> int:
        """How many have not come back."""
        return len(self._under_way) + self.writing

    async def call(self, kind: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What it returns, or raises. Cancelled, it goes on, if it has begun.

        Args:
            kind: one that was left is waited for by the next one of its kind. What relies on being alone still is,
                and a disk that hangs does not use up all threads.
        """
        while any(one.left and one.kind == kind for one in self._under_way):
            await self._changed.wait()
        one = _Call(kind)
        self._under_way.add(one)
        run = partial(self._run, current_trio_token(), one, call, arguments)
        try:
            return await self.in_thread(run, abandon_on_cancel=True)
        finally:
            one.left = True
            if one.back or not one.begun:
                self._under_way.discard(one)

    def _run(
        self, token: TrioToken, one: _Call, call: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """In the thread."""
        one.begun = True
        try:
            return None if one.left else call(*arguments)
        finally:
            one.back = True
            if one.left:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._come_back, one)

    def _come_back(self, one: _Call) -> None:
        self._under_way.discard(one)
        self._changed.wake()
