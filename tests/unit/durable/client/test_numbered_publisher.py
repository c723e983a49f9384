"""Which sequences a publisher that comes back still has to send."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.client.numbered_publisher import StoredSequences
from durable.errors import SequenceLost

edges = st.lists(st.integers(0, 60), max_size=8, unique=True).map(sorted)


@given(st.integers(0, 60), edges, st.integers(0, 70), st.integers(0, 20))
def test_missing_agrees_with_asking_for_each_sequence(
    decided: int, holes_at: list[int], first: int, count: int
) -> None:
    """Oracle: one set of all that is stored."""
    pairs = list(zip(holes_at[::2], holes_at[1::2], strict=False))
    holes = [(low, min(high, decided)) for low, high in pairs if low < decided]
    stored = {n for n in range(decided) if not any(low <= n < high for low, high in holes)}
    found = StoredSequences(decided, holes, 0).missing(first, first + count)
    told = [n for low, high in found for n in range(low, high)]
    assert told == [n for n in range(first, first + count) if n not in stored]
    assert all(high < low for (_, high), (low, _) in pairwise(found))
    if not any(low == high for low, high in holes):
        assert StoredSequences(decided, holes, 0).end == max(stored, default=-1) + 1


def test_nobody_knows_what_is_before_the_floor() -> None:
    known = StoredSequences(20, [(12, 14)], 10)
    with pytest.raises(SequenceLost, match=r"sequence 9 was stored.*nothing before 10"):
        known.missing(9, 15)
    assert known.missing(10, 22) == [(12, 14), (20, 22)]
