"""Columns: the numbers that many records have at the same place, compared in a few calls.

A column is read as one large integer whose digits, lowest first, are its numbers. Columns first differ where the
digits of these integers first differ. An evenly rising column is the sum of two such integers.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

_CACHED_LENGTHS = 8
"""Lengths of columns to cache for: most often they repeat."""


@lru_cache(_CACHED_LENGTHS)
def _ones(count: int) -> int:
    """Return the column 1, 1, 1, ... of `count` u64 as one integer, first number lowest."""
    return _as_number(array("Q", [1]) * count)


@lru_cache(_CACHED_LENGTHS)
def _rising(count: int) -> int:
    """Return the column 0, 1, 2, ... likewise."""
    return _as_number(array("Q", range(count)))


def _as_number(column: array[int]) -> int:
    return int.from_bytes(column.tobytes(), "little")


def _equal_digits(found: int, expected: int, count: int, bits: int) -> int:
    """Return how many of the lowest digits are equal."""
    differing = found ^ expected
    return count if not differing else ((differing & -differing).bit_length() - 1) // bits


def leading_equal(column: array[int], expected: array[int]) -> int:
    if column == expected:
        return len(column)
    return _equal_digits(_as_number(column), _as_number(expected), len(column), 8 * column.itemsize)


def leading_constant(column: array[int]) -> int:
    """Return how many numbers at the front are equal."""
    return leading_equal(column, column[:1] * len(column))


def leading_rising(column: array[int], step: int) -> int:
    """Return how many numbers (u64) at the front are each `step` more than the one before."""
    count = len(column)
    if column[0] + step * (count - 1) >> 64:  # The last digit would overflow.
        return 1
    expected = column[0] * _ones(count) + step * _rising(count)
    return _equal_digits(_as_number(column), expected, count, 64)
