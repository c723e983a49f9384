"""What is done of very many entries: some of them, then others have their turn.

Whoever does it is a generator, and yields between two turns. It does not know of any loop: see
broker/listing.py for what does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
ENTRIES_AT_ONCE = 200
"""A few milliseconds, until others have their turn."""


def some_at_once(entries: Iterable[T]) -> Iterator[Sequence[T]]:
    """All of them, in order. What does not stay as it is between turns has to be copied before."""
    left = iter(entries)
    while some := list(islice(left, ENTRIES_AT_ONCE)):
        yield some
