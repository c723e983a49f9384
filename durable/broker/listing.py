"""Long lists, and whatever else takes long, a little at a time: publishes, confirms and heartbeats go on
meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import trio

from ..protocol.listing import Listing

T = TypeVar("T")


async def listed(parts: Iterable[dict[str, Any]]) -> bytes:
    """A listing of dicts that are made one by one, each in a turn of its own. Raises TooLarge, and what
    making them raises."""
    listing = Listing()
    for some in parts:
        listing.add(some)
        await trio.lowlevel.checkpoint()
    return listing.finish()


async def in_turns(steps: Generator[None, None, T]) -> T:
    """What it returns; wherever it yields others have their turn. Raises what it raises."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await trio.lowlevel.checkpoint()
