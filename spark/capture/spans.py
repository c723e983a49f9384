"""Spans of numbers, [low, high), in order: of log positions, of offsets, of the messages of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Span = tuple[int, int]
END: Span = (1 << 63, 1 << 63)


def without(spans: Iterable[Span], others: Iterable[Span]) -> Iterator[Span]:
    """What is in one of `spans` and in none of the others; each of the two in order, and disjoint."""
    following = iter(others)
    first, after = next(following, END)
    for low, high in spans:
        while low < high:
            if after <= low:
                first, after = next(following, END)
            elif low < first:
                yield low, min(first, high)
                low = first
            else:
                low = after
