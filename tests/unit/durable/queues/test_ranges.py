"""Ranges against a dict of numbers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durable.queues.ranges import Ranges

bounds = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)


@given(st.lists(st.tuples(bounds, st.integers(0, 3)), max_size=30), bounds)
def test_ranges_agree_with_a_dict(steps: list[tuple[list[int], int]], probe: list[int]) -> None:
    """Number 0 cuts, others replace."""
    ranges, dumb = Ranges(), dict[int, int]()
    for (start, end), number in steps:
        gone = ranges.cut(start, end)
        assert {at: one for low, high, one in gone for at in range(low, high)} == {
            at: dumb.pop(at) for at in range(start, end) if at in dumb
        }
        if number and start < end:
            ranges.put(start, end, number)
            dumb.update(dict.fromkeys(range(start, end), number))
    assert {at: one for low, high, one in ranges for at in range(low, high)} == dumb
    neighbours = list(ranges)
    for (_, end, one), (start, _, other) in pairwise(neighbours):
        assert end < start or (end == start and one != other), "what can be one range is one"
    pieces = [(at, one) for low, high, one in ranges.pieces(*probe) for at in range(low, high)]
    assert pieces == [(at, dumb.get(at, 0)) for at in range(*probe)]
    assert list(Ranges.decode(ranges.encode())) == neighbours


spans = st.lists(bounds.map(tuple), max_size=12)


@example([([(5, 5)], [0, 0])])
@given(st.lists(st.tuples(spans, bounds), max_size=6))
def test_one_more_is_counted_wherever_it_is_asked_for(
    steps: list[tuple[list[tuple[int, int]], list[int]]],
) -> None:
    """However many spans at once, and however often one is among them."""
    ranges, dumb = Ranges(), Counter[int]()
    for more, (start, end) in steps:
        ranges.increment(more)
        dumb.update(at for span in more for at in range(*span))
        assert {at: one for low, high, one in ranges for at in range(low, high)} == dumb
        assert all(low < high for low, high, _ in ranges)
        for (_, before, one), (after, _, other) in pairwise(ranges):
            assert before < after or one != other, "what can be one range is one"
        ranges.cut(start, end)
        for at in range(start, end):
            dumb.pop(at, None)


def test_a_place_is_taken_once() -> None:
    ranges = Ranges()
    ranges.put(5, 9)
    with pytest.raises(AssertionError, match="7 is in a range"):
        ranges.put(3, 7)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x01\0\0\0", bytes([1, 0, 0, 0]) + bytes(24), bytes([2, 0, 0, 0]) + bytes(47)],
)
def test_impossible_bytes_are_refused(data: bytes) -> None:
    if data:
        with pytest.raises(ValueError, match="range"):
            Ranges.decode(data)
    else:
        with pytest.raises(ValueError, match="0 bytes"):
            Ranges.decode(data)
