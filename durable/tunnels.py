"""Several tasks over one tunnel: when it breaks, the one that reads says so, the others just end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mesh.errors import TunnelBroken

P = ParamSpec("P")


def ends_with_tunnel(task: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """`task`, returning where TunnelBroken would leave it."""

    async def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        try:
            await task(*arguments, **keywords)
        except TunnelBroken:
            return

    return run
