"""Long lists and other long work, done a little at a time, so that publishes, confirms and heartbeats go on
meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import trio

from ..protocol.listing import Listing

T = TypeVar("T")


async def encode_listing(parts: Iterable[dict[str, Any]]) -> bytes:
    """Return a listing of dicts that are made one by one; other tasks run in between. Raises TooLarge, and
    whatever making them raises."""
    listing = Listing()
    for some in parts:
        listing.add(some)
        await trio.lowlevel.checkpoint()
    return listing.finish()


async def run_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator and return its result; other tasks run wherever it yields. Raises what it raises."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await trio.lowlevel.checkpoint()
