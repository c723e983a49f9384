"""Long lists, made a little at a time: publishes, confirms and heartbeats go on meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import trio

from ..protocol.listing import Listing

T = TypeVar("T")
ENTRIES_AT_ONCE = 200
"""A few milliseconds, until others have their turn."""


def some_at_once(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, in order."""
    for at in range(0, len(entries), ENTRIES_AT_ONCE):
        yield entries[at : at + ENTRIES_AT_ONCE]


async def listed(parts: Iterable[dict[str, Any]]) -> bytes:
    """A listing of dicts that are made one by one, each in a turn of its own. Raises TooLarge, and what
    making them raises."""
    listing = Listing()
    for some in parts:
        listing.add(some)
        await trio.lowlevel.checkpoint()
    return listing.finish()
