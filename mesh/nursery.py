"""Nurseries: one that does not wrap a single exception, tasks beside a block, and a task with a time limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from .time_limits import PARTS


@asynccontextmanager
async def open_nursery() -> AsyncGenerator[trio.Nursery]:
    """Like trio's, but a single exception leaves it unwrapped; only several leave it as a group.

    A group that the block itself raised counts as a single exception and is not taken for the nursery's own.
    Cancelled beside other exceptions is left out: trio raises it again at the next checkpoint. Of several
    KeyboardInterrupts one is raised: a user who presses Ctrl-C twice would otherwise get a group, which
    `except KeyboardInterrupt` does not catch.
    """
    single: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        _, others = group.split(trio.Cancelled)
        single = others and _single(others)
        if single is None:
            raise
    # Not raised above: it would lose its own __context__.
    if single is not None:
        raise single


def _single(group: BaseExceptionGroup) -> BaseException | None:
    """Return the only exception of the group, or one of its KeyboardInterrupts if it has nothing else; else None.

    Classes derived from KeyboardInterrupt count as something else: they say more.
    """
    first = group.exceptions[0]
    if len(group.exceptions) == 1:
        return first
    _, others = group.split(lambda one: type(one) is KeyboardInterrupt)
    while others is None and isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if others is None else None


@asynccontextmanager
async def running(*tasks: Callable[[], Awaitable[object]]) -> AsyncGenerator[None]:
    """Run tasks until the block has ended, including its clean-up.

    Cancelling the block from outside does not reach them, so that a block whose clean-up has to write
    something finds its writers still running. If one of them fails, the block is cancelled.
    """
    scope = trio.CancelScope(shield=True)

    async def run() -> None:
        with scope:
            async with open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task)

    async with open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield
        finally:
            scope.cancel()


async def run_within(seconds: float, task: Callable[[], Awaitable[object]]) -> None:
    """Run a task, and cancel it after `seconds`.

    The time passes in parts, as that of `Driver.within` does; this is for callers without a node and its timers.
    """
    async with open_nursery() as nursery:

        async def run() -> None:
            await task()
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        for _ in range(PARTS):
            await trio.sleep(seconds / PARTS)
        nursery.cancel_scope.cancel()
