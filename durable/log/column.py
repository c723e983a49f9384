"""Columns of numbers: what many records have at the same place, compared in a few calls.

A column is read as one large number whose digits, the lowest first, are the numbers in it. Where two such
numbers first differ, the columns do. What rises evenly is a sum of two of them.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

_KEPT = 8
"""Lengths of columns, which most often are the same again."""


@lru_cache(_KEPT)
def _ones(count: int) -> int:
    """1, 1, 1, ...: so many numbers of 64 bits, as digits of a large one, the first one lowest."""
    return _as_number(array("Q", [1]) * count)


@lru_cache(_KEPT)
def _rising(count: int) -> int:
    """0, 1, 2, ..., likewise."""
    return _as_number(array("Q", range(count)))


def _as_number(column: array[int]) -> int:
    return int.from_bytes(column.tobytes(), "little")


def _equal_digits(found: int, expected: int, count: int, bits: int) -> int:
    """So many of the first digits are equal."""
    differing = found ^ expected
    return count if not differing else ((differing & -differing).bit_length() - 1) // bits


def leading_equal(column: array[int], expected: array[int]) -> int:
    if column == expected:
        return len(column)
    return _equal_digits(_as_number(column), _as_number(expected), len(column), 8 * column.itemsize)


def leading_constant(column: array[int]) -> int:
    """How many of the first ones are equal."""
    return leading_equal(column, column[:1] * len(column))


def leading_rising(column: array[int], step: int) -> int:
    """How many of the first ones, u64, are `step` more than the one before, each."""
    count = len(column)
    if column[0] + step * (count - 1) >> 64:  # Digits would not be these numbers.
        return 1
    expected = column[0] * _ones(count) + step * _rising(count)
    return _equal_digits(_as_number(column), expected, count, 64)
