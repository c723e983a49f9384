"""Bases of what is entered by `async with`; `await`, `with` and forgotten blocks get an error that says so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

T = TypeVar("T")


class AsyncBlock:
    """Base of what has `__aenter__` and `__aexit__`; `used_as` is the line that was probably meant."""

    used_as: ClassVar[str]

    if not TYPE_CHECKING:  # Who checks types finds neither, and says so before anything runs.

        def __await__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `await`")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `with`")

        def __exit__(self, *exception: object) -> None:
            """Never called; without it Python would not ask for `__enter__` either."""


class Life(AsyncBlock, Generic[T]):
    """What lives as long as the block, which is entered once: an `asynccontextmanager` that says so."""

    def __init__(self, life: AbstractAsyncContextManager[T]) -> None:
        self._life = life
        self._entered = False

    if not TYPE_CHECKING:  # Who checks types would take any name for one that this has.

        def __getattr__(self, name: str) -> NoReturn:
            what = self.used_as.rpartition(" ")[2]
            raise AttributeError(f"no {name!r} here: the {what} is what `{self.used_as}` gives")

        def __aiter__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `async for`")

    async def __aenter__(self) -> T:
        if self._entered:
            raise RuntimeError(f"entered twice: for another one call again, `{self.used_as}`")
        self._entered = True
        return await self._life.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        return await self._life.__aexit__(kind, error, trace)
