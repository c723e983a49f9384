"""What is left of spans of numbers when others are taken away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark.capture.spans import Span, without

edges = st.lists(st.integers(0, 40), max_size=10, unique=True).map(sorted)


def disjoint(at: list[int]) -> list[Span]:
    return list(zip(at[::2], at[1::2], strict=False))


@given(edges, edges)
def test_without_agrees_with_asking_for_each_number(at: list[int], others_at: list[int]) -> None:
    """Each is looked at once: a log of which much was carried has a million of them."""
    spans, others = disjoint(at), disjoint(others_at)
    found = list(without(iter(spans), iter(others)))
    taken = {n for low, high in others for n in range(low, high)}
    left = [n for low, high in spans for n in range(low, high) if n not in taken]
    assert [n for low, high in found for n in range(low, high)] == left
    assert all(low < high for low, high in found)
