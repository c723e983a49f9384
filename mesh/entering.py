"""Base classes for objects entered by `async with`: `await`, `with` or a missing block raise errors that say so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

T = TypeVar("T")


class AsyncBlock:
    """Base of classes with `__aenter__` and `__aexit__`; `used_as` is the line that was probably meant."""

    used_as: ClassVar[str]

    if not TYPE_CHECKING:  # A type checker must not see these: without them it reports the mistake.

        def __await__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `await`")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `with`")

        def __exit__(self, *exception: object) -> None:
            """Never called, but without it Python would not call `__enter__` either."""


class SingleUseBlock(AsyncBlock, Generic[T]):
    """Wraps an `asynccontextmanager` that may be entered once, and says so if it is used otherwise."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._entered = False

    if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.

        def __getattr__(self, name: str) -> NoReturn:
            what = self.used_as.rpartition(" ")[2]
            raise AttributeError(
                f"no attribute {name!r}: first get the {what} from `{self.used_as}`"
            )

        def __aiter__(self) -> NoReturn:
            raise TypeError(f"want `{self.used_as}`, got `async for`")

    async def __aenter__(self) -> T:
        if self._entered:
            raise RuntimeError(f"entered twice: for another one, call again, `{self.used_as}`")
        self._entered = True
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        return await self._manager.__aexit__(kind, error, trace)
