"""Stretches of numbers, [low, high) in order, such as log positions or offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

Stretch = tuple[int, int]


def without(stretches: Iterable[Stretch], others: Collection[Stretch]) -> Iterator[Stretch]:
    """What is in one of `stretches` and in none of the others."""
    for low, high in stretches:
        for first, after in others:
            if first < high and after > low:
                if low < first:
                    yield low, first
                low = after
        if low < high:
            yield low, high
