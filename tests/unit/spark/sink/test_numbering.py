"""Sequences of captured rows: the same whatever else is selected, or still there, beside them."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark.sink.errors import Disordered
from spark.sink.numbering import OffsetNumbers

offsets = st.lists(st.integers(0, 200_000), min_size=1, unique=True).map(sorted)


@given(offsets, st.lists(st.integers(0, 200), max_size=4).map(sorted))
def test_what_is_gone_moves_no_other_row(found: list[int], edges: list[int]) -> None:
    """Fed in pieces: all of them, and those that are left."""
    for offset_is_left in (lambda _: True, lambda one: one % 3, lambda one: one > found[0]):
        left = [one for one in found if offset_is_left(one)]
        cuts = [edge for edge in edges if edge <= len(left)]
        numbers = OffsetNumbers("jobs/0")
        sequences: list[int] = []
        for low, high in zip([0, *cuts], [*cuts, len(left)], strict=True):
            sequences += numbers.sequences(np.array(left[low:high], np.int64)).tolist()
        assert sequences == left


@pytest.mark.parametrize("again", [3, 2])
def test_an_offset_that_goes_back_or_comes_twice_is_an_error(again: int) -> None:
    numbers = OffsetNumbers("jobs/0")
    numbers.sequences(np.array([1, 3], np.int64))
    with pytest.raises(Disordered, match="jobs/0"):
        numbers.sequences(np.array([again, 9], np.int64))
