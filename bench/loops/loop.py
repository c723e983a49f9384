"""What the bench asks of an event loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Receive = Callable[[], None]


class Loop(ABC):
    """Made, then run once."""

    @abstractmethod
    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `main` returns."""

    @abstractmethod
    async def until(self, due_ns: int) -> None:
        """Let clients receive until then, on the clock of `time.perf_counter_ns`."""

    @abstractmethod
    def watch(self, fd: int, receive: Receive) -> None:
        """Call `receive` whenever `fd` is readable, from now on."""


def drive(step: Awaitable[None]) -> None:
    """Run a coroutine that never suspends, from a place that cannot await.

    Raises:
        RuntimeError: it wanted to wait.
    """
    steps = step.__await__()
    try:
        next(steps)
    except StopIteration:
        return
    raise RuntimeError("a step that must not wait wanted to")


def run_driven(main: Callable[[], Awaitable[T]]) -> T:
    """What `main` returns, which waits by blocking only."""
    result: list[T] = []

    async def step() -> None:
        result.append(await main())

    drive(step())
    return result[0]
