"""Work on very many entries, split so that other tasks can run in between.

The work is written as a generator that yields between two parts, and so depends on no event loop;
broker/listing.py runs such generators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
ENTRIES_AT_ONCE = 200
"""A few milliseconds of work before other tasks run."""


def some_at_once(entries: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield all entries in order, up to `ENTRIES_AT_ONCE` at a time.

    The caller must pass a copy of a collection that may change between two parts.
    """
    left = iter(entries)
    while some := list(islice(left, ENTRIES_AT_ONCE)):
        yield some
