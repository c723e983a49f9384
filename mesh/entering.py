"""What is entered with `async with`, and says so to whoever awaits it or forgets the `async`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn


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
