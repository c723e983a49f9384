"""Calls of a store in worker threads, and its commits, known until they have come back: also where nobody waits any more.

A thread in the kernel cannot be got out of it, nor can a sync that the kernel does by itself. So who is cancelled leaves, and the call goes on: as long as it does, its files stay
open, and the directory stays locked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import trio
from trio.lowlevel import current_trio_token

from mesh.waker import Bell

from ..errors import StoreClosed

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
        self._changed, self._token = changed, current_trio_token()
        self._under_way: set[_Call] = set()
        self.writing = False
        """Whether a commit, which a thread of its own or the kernel has, has not come back."""
        self._closed = False
        self._then: Callable[[], object] | None = None

    def __len__(self) -> int:
        """How many have not come back."""
        return len(self._under_way) + self.writing

    async def call(self, kind: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What it returns, or raises. Cancelled, it goes on, if it has begun.

        Args:
            kind: one that was left is waited for by the next one of its kind. What relies on being alone still is,
                and a disk that hangs does not use up all threads.
        Raises:
            StoreClosed: the directory may be another one's by now.
        """
        while any(one.left and one.kind == kind for one in self._under_way):
            await self._changed.wait()
        if self._closed:
            raise StoreClosed("the store has been closed")
        one = _Call(kind)
        self._under_way.add(one)
        run = partial(self._run, one, call, arguments)
        try:
            return await self.in_thread(run, abandon_on_cancel=True)
        finally:
            one.left = True
            if one.back or not one.begun:
                self._under_way.discard(one)
                self._look()

    def _run(self, one: _Call, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """In the thread."""
        one.begun = True
        try:
            return None if one.left else call(*arguments)
        finally:
            one.back = True
            if one.left:
                self._tell(one)

    def write(self, call: Callable[..., object], *arguments: Any) -> None:
        """In the thread of commits; `writing` has been set."""
        try:
            call(*arguments)
        finally:
            self.written()

    def written(self) -> None:
        """A commit has come back. From any thread."""
        self.writing = False
        if self._then is not None:  # Nobody waits for it any more.
            self._tell(None)

    def _tell(self, one: _Call | None) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._come_back, one)

    def _come_back(self, one: _Call | None) -> None:
        if one is not None:
            self._under_way.discard(one)
        self._look()
        self._changed.wake()

    def _look(self) -> None:
        if self._then is not None and not self:
            then, self._then = self._then, None
            then()

    def close(self, then: Callable[[], object]) -> bool:
        """There will be no more of them. `then` is called when all have come back: now, or while trio still runs.

        Returns:
            Whether it has been.
        """
        self._closed = True
        self._then = then  # First: a commit that comes back now sees it, or is seen.
        self._look()
        return self._then is None

    async def back(self) -> None:
        """Return when none is under way."""
        while self:
            await self._changed.wait()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until the block has ended this counts as a call: there is more to come that needs the lock."""
        one = _Call("held")
        self._under_way.add(one)
        try:
            yield
        finally:
            self._come_back(one)
