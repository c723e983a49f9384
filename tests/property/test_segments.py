"""Ranges of references against one at a time."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.log.compaction import Chosen, choose
from durable.log.segments import Segment, Segments, Tally

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


@given(
    st.lists(st.integers(2, END), unique=True, max_size=8).map(sorted),
    st.lists(st.tuples(ranges(), st.booleans()), max_size=8),
    st.integers(0, END),
)
def test_what_a_tally_has_is_as_good_as_released(
    firsts: list[int], referred: list[tuple[range, bool]], keep_from: int
) -> None:
    made = segments(firsts)
    for one in made:
        one.sealed, one.end = True, one.first + 1
    tally, gone = Tally(made), [positions for positions, released in referred if released]
    for positions, _ in referred:
        made.refer_each(positions, 10)
    for positions in gone:
        tally.count_each(positions, 10)
    before = made.unused(keep_from)
    expected = made.unused(keep_from, tally)
    needed = [max(1.0, one.needed_bytes) for one in made.candidates(END, 0.0, tally)]
    assert made.unused(keep_from) == before, "nothing was released"
    for positions in gone:
        made.release_each(positions, 10)
    assert made.unused(keep_from) == expected
    assert [max(1.0, one.needed_bytes) for one in made.candidates(END, 0.0)] == needed


@given(
    st.integers(1, 1000), st.lists(st.tuples(st.floats(0.1, 4), st.integers(0, 300)), max_size=5)
)
def test_what_was_counted_corrects_what_is_estimated(
    live: int, counts: list[tuple[float, int]]
) -> None:
    """Where that was too little: `times` as much was found. As less is live, less is needed."""
    made = segments([50])
    for one in made:
        one.note(one.first + 20, 64, 128)
    made.refer(10, 1, live)
    expected = float(live)
    for times, gone in counts:
        made.raise_growth(10, times)
        expected *= max(1.0, times)
        assert made.candidates(END, 0.0)[0].needed_bytes == pytest.approx(expected)
        left = max(1, live - gone)
        made.release(10, 0, live - left)
        expected, live = expected * left / live, left
        assert made.candidates(END, 0.0)[0].needed_bytes == pytest.approx(expected)
    made.exclude(10)
    assert made.candidates(END, 0.0)[0].needed_bytes == inf
    cut = Tally(made)
    cut.count(10, 0, live)
    assert made.candidates(END, 0.0, cut)[0].needed_bytes == inf
    made.release(10, 1, live)
    assert made.candidates(END, 0.0)[0].needed_bytes == 0
    made.raise_growth(10_000, 2)  # It has been freed meanwhile.


def test_what_found_no_room_is_chosen_when_there_is_some() -> None:
    """Found: it was left alone until half of it was settled, on an empty disk as well."""
    made = segments([50, 100])
    for one in made:
        one.sealed = True
        one.note(one.first + 20, 64, 10_000)
    made.refer(10, 1, 500)

    def chosen(room_bytes: float) -> Chosen | None:
        return choose(made.candidates(END, 0.0), 0.25, room_bytes, full=room_bytes < inf)

    first = chosen(1000)
    assert first is not None
    made.raise_growth(first.positions.start, 1001 / first.needed_bytes)
    assert chosen(1000) is None
    assert chosen(1600) is not None
    assert chosen(inf) is not None


def test_how_soon_it_goes_by_itself_is_known_of_each() -> None:
    """By what was needed at the look before, ten seconds ago."""
    made = segments([50, 100])
    made.refer(10, 10, 1000)
    made.refer(70, 10, 1000)
    assert [one.dead_in_s for one in made.candidates(END, 7.0)] == [inf, inf, inf]
    made.release(10, 1, 100)
    assert [one.dead_in_s for one in made.candidates(END, 17.0)] == [90.0, inf, inf]
    assert [one.dead_in_s for one in made.candidates(END, 27.0)] == [inf, inf, inf]


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
