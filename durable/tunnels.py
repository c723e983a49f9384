"""Several tasks share one tunnel. When it breaks, the reading task reports it, the others just return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mesh.errors import TunnelBroken

from .errors import DurableError

P = ParamSpec("P")


def ends_with_tunnel(task: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Return `task` such that it returns, instead of raising, when the tunnel breaks."""

    async def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        try:
            await task(*arguments, **keywords)
        except TunnelBroken:
            return

    return run


def single_error(group: BaseExceptionGroup) -> DurableError:
    """Return one error that stands for a group of errors, from several tasks whose session ended at once.

    Raises:
        BaseExceptionGroup: the group has other errors than DurableError and TunnelBroken, or no DurableError.
    """
    ends, others = group.split((DurableError, TunnelBroken))
    reason = None if ends is None or others is not None else _first_error(ends)
    if reason is None:
        raise group
    return reason


def _first_error(group: BaseExceptionGroup) -> DurableError | None:
    found = (
        _first_error(one) if isinstance(one, BaseExceptionGroup) else one
        for one in group.exceptions
    )
    return next((one for one in found if isinstance(one, DurableError)), None)
