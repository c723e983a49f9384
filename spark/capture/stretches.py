"""Stretches of numbers, [low, high) in order, such as log positions or offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Stretch = tuple[int, int]
END: Stretch = (1 << 63, 1 << 63)


def without(stretches: Iterable[Stretch], others: Iterable[Stretch]) -> Iterator[Stretch]:
    """What is in one of `stretches` and in none of the others; each of the two in order, and disjoint."""
    following = iter(others)
    first, after = next(following, END)
    for low, high in stretches:
        while low < high:
            if after <= low:
                first, after = next(following, END)
            elif low < first:
                yield low, min(first, high)
                low = first
            else:
                low = after
