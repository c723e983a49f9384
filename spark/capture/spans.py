"""Spans of numbers, [low, high), in order: of log positions, of offsets, or of the messages of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Span = tuple[int, int]
END: Span = (1 << 63, 1 << 63)


def without(spans: Iterable[Span], others: Iterable[Span]) -> Iterator[Span]:
    """Yield what is in `spans` and not in `others`; each of the two is in order and disjoint."""
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
