"""Percentiles against all values in order."""

from __future__ import annotations

from itertools import chain

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark.histogram import Histogram

bases = st.sampled_from([1.01, 1.02])
some_times = st.lists(st.integers(-5, 1 << 62), max_size=60)


@given(some_times.filter(bool), bases, st.sampled_from([0, 1, 50, 99, 100]))
def test_percentiles_are_never_too_short_and_at_most_a_base_too_long(
    times_us: list[int], base: float, percent: int
) -> None:
    found = Histogram(base)
    found.add(np.array(times_us))
    rank = max(1, -(-percent * len(times_us) // 100))
    exact = max(1, sorted(times_us)[rank - 1])
    assert exact <= found.percentile_us(percent) * 1.000001 <= exact * base * 1.000002


@given(bases, st.lists(some_times, max_size=5))
def test_what_is_merged_or_made_of_counts_is_as_if_added_at_once(
    base: float, parts: list[list[int]]
) -> None:
    whole, merged = Histogram(base), Histogram(base)
    whole.add(np.array([*chain(*parts)], np.int64))
    for times_us in parts:
        one = Histogram(base)
        one.add(np.array(times_us, np.int64))
        merged.merge(Histogram(base, one.counts))
    assert merged.counts == whole.counts
    assert sum(whole.counts.values()) == sum(map(len, parts))
    assert merged.percentile_us(99) == whole.percentile_us(99)


def test_short_times_are_exact_in_whole_us() -> None:
    for time_us in range(1, 100):
        found = Histogram(1.01)
        found.add(np.array([time_us]))
        assert int(found.percentile_us(50)) == time_us


def test_the_longest_time_there_is_takes_a_few_thousand_buckets() -> None:
    found = Histogram(1.01)
    found.add(np.array([(1 << 63) - 1]))
    assert found.percentile_us(100) >= (1 << 63) - 1
    assert len(found.counts) == 1
    assert max(found.counts) < 4400


def test_there_were_none() -> None:
    assert Histogram(1.01).percentile_us(99) == 0.0
