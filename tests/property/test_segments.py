"""Ranges of references against one at a time."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.log.compaction import OVER
from durable.log.segments import Segment, Segments

END = 120


def segments(firsts: list[int]) -> Segments:
    made = Segments()
    for number, first in enumerate([1, *firsts], start=1):
        made.add(Segment(number, first, 4096))
    return made


def counted(made: Segments) -> list[tuple[int, int]]:
    return [(one.references, one.live_bytes) for one in made]


@st.composite
def ranges(draw: st.DrawFn) -> range:
    """Log positions as lanes have them: rising, or falling where compaction moved them."""
    step = draw(st.integers(1, 20))
    found = range(draw(st.integers(1, END)), END, step)
    return found[::-1] if draw(st.booleans()) else found


@given(
    st.lists(st.integers(2, END), unique=True, max_size=8).map(sorted),
    st.lists(st.tuples(ranges(), st.integers(0, 500)), max_size=5),
)
def test_a_range_counts_as_each_of_its_records(
    firsts: list[int], referred: list[tuple[range, int]]
) -> None:
    each, all_ = segments(firsts), segments(firsts)
    for positions, size_bytes in referred:
        for position in positions:
            each.refer(position, 1, size_bytes)
        all_.refer_each(positions, size_bytes)
        assert counted(all_) == counted(each)
    for positions, size_bytes in referred:
        all_.release_each(positions, size_bytes)
    assert set(counted(all_)) == {(0, 0)}


@given(st.integers(0, 2000), st.integers(0, 1000), st.integers(0, 1000))
def test_what_was_counted_corrects_what_is_estimated(counted: int, before: int, gone: int) -> None:
    """Where that was too little; and as less is live, less is needed. What is to be left is."""
    made = segments([50])
    for one in made:
        one.note(one.first + 20, 64, 128)
    made.refer(10, 1, before + 1)
    (first, _) = made.candidates(END)
    assert first.needed_bytes == OVER * (before + 1)
    made.needs(10, counted)
    (first, _) = made.candidates(END)
    assert first.needed_bytes == pytest.approx(OVER * max(before + 1, counted))
    made.release(10, 0, min(gone, before))
    (less, _) = made.candidates(END)
    left = 1 - min(gone, before) / (before + 1)
    assert less.needed_bytes == pytest.approx(first.needed_bytes * left)
    made.needs(10, inf)
    assert made.candidates(END)[0].needed_bytes == inf
    made.release(10, 1, before + 1 - min(gone, before))
    assert made.candidates(END)[0].needed_bytes == 0
    made.needs(10_000, 1)  # It has been freed meanwhile.


def test_the_cost_is_that_of_the_segments() -> None:
    """Found: a queue of a million messages was let go one by one, while everybody waited."""
    made, found = segments([1000, 500_000]), list[int]()
    find = made.find

    def noting(position: int) -> Segment | None:
        found.append(position)
        return find(position)

    made.find = noting  # type: ignore[method-assign]
    made.refer_each(range(1, 1_000_000), 100)
    made.release_each(range(999_999, 0, -1), 100)
    assert len(found) <= 12
    assert set(counted(made)) == {(0, 0)}
