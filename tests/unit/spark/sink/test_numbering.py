"""Sequences of captured rows: the same whatever else was selected beside them, and dense in a block."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark.sink.errors import Disordered
from spark.sink.numbering import OffsetNumbers

offsets = st.lists(st.integers(0, 200), min_size=1, unique=True).map(sorted)


def numbered(found: list[int], edges: list[int]) -> list[int]:
    numbers = OffsetNumbers("jobs/0", block=16)
    sequences: list[int] = []
    for low, high in zip([0, *edges], [*edges, len(found)], strict=True):
        sequences += numbers.sequences(np.array(found[low:high], np.int64)).tolist()
    return sequences


@given(offsets, st.lists(st.integers(0, 200), max_size=4).map(sorted))
def test_sequences_agree_with_counting_in_each_block(found: list[int], edges: list[int]) -> None:
    edges = [edge for edge in edges if edge <= len(found)]
    seen: dict[int, int] = {}
    expected = []
    for one in found:
        block = one // 16
        expected.append(16 * block + seen.get(block, 0))
        seen[block] = seen.get(block, 0) + 1
    assert numbered(found, edges) == expected
    assert expected == sorted(set(expected))


@given(offsets, st.integers(0, 12))
def test_what_is_gone_in_front_changes_no_later_block(found: list[int], blocks: int) -> None:
    """Retention frees what is old while a replay is tried again."""
    later = [one for one in found if one >= 16 * blocks]
    whole = dict(zip(found, numbered(found, []), strict=True))
    assert numbered(later, []) == [whole[one] for one in later]


def test_all_rows_have_their_offsets() -> None:
    assert numbered(list(range(100)), [40]) == list(range(100))


@pytest.mark.parametrize("again", [3, 2])
def test_an_offset_that_goes_back_or_comes_twice_is_an_error(again: int) -> None:
    numbers = OffsetNumbers("jobs/0")
    numbers.sequences(np.array([1, 3], np.int64))
    with pytest.raises(Disordered, match="jobs/0"):
        numbers.sequences(np.array([again, 9], np.int64))
