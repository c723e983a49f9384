"""What is told of many records at once is what would be told of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.log.segments import Segment, Segments, Tally
from durable.queues.block import Block
from durable.queues.index import Index
from durable.vhost.store import Store, count_all, record_bytes, refer_all, release_all

END = 400
UNLIKE = [(1, 1 + number % 2, number % 7) for number in range(40)]
"""Messages in a run, how much later it is than the one before it, and its size: never twice the same in a row."""


@pytest.fixture(autouse=True, scope="module")
def few_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.queues.index._ROWS_MAX", 16)
        patch.setattr("durable.queues.block._SMALL_ROWS_MAX", 3)
        yield


def segments(firsts: list[int]) -> Segments:
    made = Segments()
    for number, first in enumerate([1, *firsts]):
        made.add(Segment(number, first, 4096))
    return made


def counted(made: Segments) -> list[tuple[int, int]]:
    return [(one.references, one.live_bytes) for one in made]


@given(
    st.lists(st.integers(2, END), unique=True, max_size=6).map(sorted),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2)), max_size=30),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, END)), max_size=5),
    st.floats(0, 1),
)
def test_records_of_a_block_count_as_each_of_them(
    firsts: list[int], runs: list[tuple[int, int, int]], moves: list[tuple[int, int]], share: float
) -> None:
    index, position, begun = Index(), 1, list[int]()
    for count, later, size in [*UNLIKE, *runs]:
        begun.append(index.end)
        index.append(index.end, count, position, 10 * size)
        position = (position + later) % END + 1
    for at, to in moves:
        index.move(begun[at], to)
    each, together = segments(firsts), segments(firsts)
    for run in index.runs(0, index.end):
        each.refer(run.position, 1, record_bytes(run.count, run.size_bytes))
    referred = list(index.records(0, index.end))
    for records in referred:
        refer_all(cast("Store", together), records)
    assert any(isinstance(one, Block) for one in referred)
    assert counted(together) == counted(each)
    tally = Tally(together)
    for records in referred:
        count_all(cast("Store", together), records, tally)
    assert [tally.references[one.number] for one in each] == [one.references for one in each]
    assert counted(together) == counted(each), "nothing was released"
    some = begun[int(share * (len(begun) - 1))]  # Not in the parts in which they were referred to.
    for start, end in ((0, some), (some, index.end)):
        for records in index.records(start, end):
            release_all(cast("Store", together), records)
    assert set(counted(together)) == {(0, 0)}
