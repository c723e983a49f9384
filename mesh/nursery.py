"""Nurseries: one that does not wrap a lone exception, tasks beside a block, a task with a time limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from .patience import PARTS


@asynccontextmanager
async def open_nursery() -> AsyncGenerator[trio.Nursery]:
    """As trio's, but one exception leaves it as it is, and only several leave it as a group.

    A group that the block itself raised is such an exception: it is not taken for the nursery's.
    Cancelled beside others is left out: trio raises it again at the next checkpoint.
    """
    alone: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        _, others = group.split(trio.Cancelled)
        if others is None or len(others.exceptions) > 1:
            raise
        alone = others.exceptions[0]  # Raised below: here it would lose its own __context__.
    if alone is not None:
        raise alone


@asynccontextmanager
async def running(*tasks: Callable[[], Awaitable[object]]) -> AsyncGenerator[None]:
    """Run tasks until the block has ended, its cleaning up included.

    What cancels the block from outside does not reach them: a block that still has to write
    something down finds those that write at work. A failure of theirs ends the block.
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
    """Run a task for so long at most.

    The time passes in parts, as `Driver.within`'s does, for who has no node with timers.
    """
    async with open_nursery() as nursery:

        async def run() -> None:
            await task()
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        for _ in range(PARTS):
            await trio.sleep(seconds / PARTS)
        nursery.cancel_scope.cancel()
