"""Offsets as sequences: which may come, however they come."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark.sink.errors import Disordered
from spark.sink.numbering import OffsetOrder

offsets = st.lists(st.integers(0, 12), min_size=1, max_size=12)


def is_taken(found: list[int], edges: list[int]) -> bool:
    """In pieces that end at `edges`."""
    order = OffsetOrder("jobs/0")
    cuts = sorted({0, *(edge for edge in edges if edge < len(found)), len(found)})
    try:
        for low, high in pairwise(cuts):
            order.check(np.array(found[low:high], np.int64))
    except Disordered:
        return False
    return True


@given(offsets | offsets.map(lambda found: sorted(set(found))), st.lists(st.integers(1, 12)))
def test_each_has_to_come_after_the_one_before(found: list[int], edges: list[int]) -> None:
    """Wherever they are cut; with gaps, where rows are left out or gone."""
    assert is_taken(found, edges) == all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize("again", [3, 2])
def test_an_offset_that_goes_back_or_comes_twice_is_an_error(again: int) -> None:
    order = OffsetOrder("jobs/0")
    order.check(np.array([1, 3], np.int64))
    with pytest.raises(Disordered, match="jobs/0"):
        order.check(np.array([again, 9], np.int64))
