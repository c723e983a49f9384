"""Several tasks over one tunnel: when it breaks, the one that reads says so, the others just end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mesh.errors import TunnelBroken

from .errors import DurableError

P = ParamSpec("P")


def ends_with_tunnel(task: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """`task`, returning where TunnelBroken would leave it."""

    async def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        try:
            await task(*arguments, **keywords)
        except TunnelBroken:
            return

    return run


def one_of(group: BaseExceptionGroup) -> DurableError:
    """Of several tasks that met the end of their session at once: what one of them says of it.

    Raises:
        BaseExceptionGroup: there is something else among it.
    """
    ends, others = group.split((DurableError, TunnelBroken))
    reason = None if ends is None or others is not None else _first(ends)
    if reason is None:
        raise group
    return reason


def _first(group: BaseExceptionGroup) -> DurableError | None:
    found = (
        _first(one) if isinstance(one, BaseExceptionGroup) else one for one in group.exceptions
    )
    return next((one for one in found if isinstance(one, DurableError)), None)
