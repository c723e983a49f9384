"""What is settled, against a set of sequences."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.queues.settled import CHUNK, Settled

END = 5 * CHUNK
edges = st.one_of(
    st.integers(0, END), st.integers(0, 40), st.sampled_from([n * CHUNK for n in range(6)]),
    st.integers(-2, 2).map(lambda by: 2 * CHUNK + by),
)  # fmt: skip
spans = st.tuples(edges, edges).map(sorted)


@given(st.lists(spans, max_size=12), spans)
def test_settled_agrees_with_a_set(adds: list[list[int]], probe: list[int]) -> None:
    settled, dumb = Settled(), bytearray(END + 1)
    for start, end in adds:
        settled.add(start, end)
        dumb[start:end] = b"\1" * (end - start)
    for one in (settled, Settled.decode(settled.encode())):
        assert one.low == dumb.index(0)
        assert one.end == dumb.rindex(1) + 1 if 1 in dumb else one.end == 0
        start, end = probe
        assert one.count_unsettled(start, end) == dumb[start:end].count(0)
        assert one.covers(start, end) == (0 not in dumb[start:end])
        assert all(one.covers(at, at + 1) == dumb[at] for at in (start, end, one.low))
        unsettled, last = bytearray(b"\1" * (END + 1)), start - 1
        for low, high in one.unsettled(start, end):
            assert last < low < high, "ranges are in order and as long as they can be"
            unsettled[low:high], last = bytes(high - low), high
        assert unsettled[start:end] == dumb[start:end]


@given(st.permutations(range(40)))
def test_one_by_one_in_any_order_ends_at_nothing_kept(order: list[int]) -> None:
    settled = Settled()
    for at in order:
        settled.add(at, at + 1)
    assert (settled.low, settled.end) == (40, 40)
    assert settled.encode() == Settled.decode(settled.encode()).encode()
    assert len(settled.encode()) == 24


def test_a_whole_range_costs_no_more_than_a_single_message() -> None:
    settled = Settled()
    settled.add(5, 10**15)
    assert settled.count_unsettled(0, 10**15) == 5
    assert list(settled.unsettled(0, 10**15 + 9)) == [(0, 5), (10**15, 10**15 + 9)]
    assert len(settled.encode()) < 2000
    settled.add(0, 5)
    assert settled.low == 10**15


def test_a_gap_is_skipped() -> None:
    settled = Settled()
    settled.add(7, 9)
    settled.add(0, 7)
    assert settled.low == 9
    settled.add(0, 3)
    assert settled.low == 9


def test_a_message_that_nobody_settles_does_not_cost_what_is_settled_behind_it() -> None:
    settled = Settled()
    for at in range(1, 40 * CHUNK):
        settled.add(at, at + 1)
    assert settled.low == 0
    bitmaps = sum(sys.getsizeof(one) for one in settled._bitmaps.values())
    assert bitmaps < 3 * CHUNK // 8


@pytest.mark.parametrize("size", [0, 10, 23, 25, 30])
def test_impossible_lengths_are_refused(size: int) -> None:
    settled = Settled()
    settled.add(3, 4)
    with pytest.raises(ValueError, match="bytes"):
        Settled.decode(settled.encode()[:size])


@given(st.lists(spans, min_size=1, max_size=4), st.integers(0, 2000), st.integers(1, 255))
def test_changed_bytes_are_refused_or_mean_something_else(
    adds: list[list[int]], at: int, flip: int
) -> None:
    settled = Settled()
    for start, end in adds:
        settled.add(start, end)
    data = bytearray(settled.encode())
    data[at % len(data)] ^= flip
    try:
        other = Settled.decode(bytes(data))
    except ValueError:
        return
    assert not other.covers(other.low, other.low + 1)
    assert other.end == other.low or other.covers(other.end - 1, other.end)
    assert Settled.decode(other.encode()).encode() == other.encode()
