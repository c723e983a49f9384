"""Calls of a store in worker threads, and its commits: each is known until it returns, even if nobody waits for it.

A thread that is in the kernel cannot be interrupted, nor can a sync that the kernel does by itself. So a task that is
cancelled leaves, and its call goes on; as long as it does, its files stay open and the directory stays locked.
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
"""`trio.to_thread.run_sync`, or a test's replacement for it."""


class _Call:
    """One call. Its task and its thread both write to it: whichever comes second sees what the other one has set."""

    __slots__ = ("abandoned", "begun", "kind", "returned")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.begun = self.returned = self.abandoned = False
        """Its thread has begun it; has ended it; no task waits for it any more."""


class Calls:
    """The calls of one log."""

    def __init__(self, in_thread: InThread, changed: Bell) -> None:
        """
        Args:
            in_thread: runs the calls.
            changed: rung when a call has returned that no task waited for.
        """
        self.in_thread = in_thread
        self._changed, self._token = changed, current_trio_token()
        self._under_way: set[_Call] = set()
        self.writing = False
        """Whether a commit is under way, in a thread of its own or in the kernel."""
        self._closed = False
        self._on_idle: Callable[[], object] | None = None

    def __len__(self) -> int:
        """The number of calls that have not returned."""
        return len(self._under_way) + self.writing

    async def call(self, kind: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call in a worker thread; return what it returns, or raise what it raises.

        If this is cancelled, the call goes on if it has begun.

        Args:
            kind: before a call begins, abandoned calls of the same kind have to return. So what relies on being
                alone stays alone, and a disk that hangs does not use up all threads.
        Raises:
            StoreClosed: the store is closed, and the directory may belong to another process by now.
        """
        while any(one.abandoned and one.kind == kind for one in self._under_way):
            await self._changed.wait()
        if self._closed:
            raise StoreClosed("the store has been closed")
        one = _Call(kind)
        self._under_way.add(one)
        run = partial(self._run, one, call, arguments)
        try:
            return await self.in_thread(run, abandon_on_cancel=True)
        finally:
            one.abandoned = True
            if one.returned or not one.begun:
                self._under_way.discard(one)
                self._check_idle()

    def _run(self, one: _Call, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run a call, in its thread."""
        one.begun = True
        try:
            return None if one.abandoned else call(*arguments)
        finally:
            one.returned = True
            if one.abandoned:
                self._report_return(one)

    def write(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a commit in the thread of commits; `writing` must be set already."""
        try:
            call(*arguments)
        finally:
            self.written()

    def written(self) -> None:
        """Note that a commit has returned. From any thread."""
        self.writing = False
        if self._on_idle is not None:  # No task waits for it any more.
            self._report_return(None)

    def _report_return(self, one: _Call | None) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._on_return, one)

    def _on_return(self, one: _Call | None) -> None:
        if one is not None:
            self._under_way.discard(one)
        self._check_idle()
        self._changed.wake()

    def _check_idle(self) -> None:
        if self._on_idle is not None and not self:
            on_idle, self._on_idle = self._on_idle, None
            on_idle()

    def close(self, on_idle: Callable[[], object]) -> bool:
        """Refuse further calls. `on_idle` is called when all have returned: now, or later, if trio still runs then.

        Returns:
            Whether it was called already.
        """
        self._closed = True
        # Set before the check: a commit that returns just now either sees it, or is seen there.
        self._on_idle = on_idle
        self._check_idle()
        return self._on_idle is None

    async def wait_idle(self) -> None:
        """Return when no call is under way."""
        while self:
            await self._changed.wait()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Count the block as a call, for work in several steps that needs the lock of the directory throughout."""
        one = _Call("held")
        self._under_way.add(one)
        try:
            yield
        finally:
            self._on_return(one)
