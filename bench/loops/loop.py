"""The interface of an event loop in the bench."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Receive = Callable[[], None]


class Loop(ABC):
    """An event loop, which is run once."""

    @abstractmethod
    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `main` in the loop and return its result."""

    @abstractmethod
    async def until(self, due_ns: int) -> None:
        """Let clients receive until `due_ns`, in ns of `time.perf_counter_ns`."""

    @abstractmethod
    def watch(self, fd: int, receive: Receive) -> None:
        """Call `receive` each time `fd` is readable, from now on."""


def drive(step: Awaitable[None]) -> None:
    """Run a coroutine that never suspends, from code that cannot await.

    Raises:
        RuntimeError: the coroutine suspended.
    """
    steps = step.__await__()
    try:
        next(steps)
    except StopIteration:
        return
    raise RuntimeError("a step that must not wait wanted to")


def run_driven(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main`, which may block but never suspends, and return its result."""
    result: list[T] = []

    async def step() -> None:
        result.append(await main())

    drive(step())
    return result[0]
