"""Due times against an oracle that takes one message after the other."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark.sink.pacing import LATENESS_BASE, Lateness, Pacer, Schedule, cut_pauses

times = st.lists(st.integers(1_000_000, 9_000_000), min_size=1, max_size=40)
cuts = st.lists(st.integers(0, 39), max_size=4).map(sorted)


def in_pieces(pacer: Pacer, at_us: list[int], edges: list[int], now_us: int = 0) -> list[int]:
    due: list[int] = []
    for low, high in zip([0, *edges], [*edges, len(at_us)], strict=True):
        due += pacer.due(np.array(at_us[low:high], np.int64), now_us).tolist()
    return due


@given(times, cuts, st.floats(0.1, 100), st.sampled_from([0.0, 10.0, 1e4]))
def test_due_times_agree_with_one_after_the_other(
    at_us: list[int], edges: list[int], speed: float, rate: float
) -> None:
    """Never before its time, never before the one before it, never nearer to it than the rate says."""
    edges = [edge for edge in edges if edge <= len(at_us)]
    due = in_pieces(Pacer(Schedule(5_000_000, 1_000_000, speed, rate)), at_us, edges)
    step, latest = (1e6 / rate if rate else 0.0), 5_000_000.0
    for number, one in enumerate(at_us):
        latest = max(5_000_000 + (one - 1_000_000) / speed, latest + step)
        assert abs(due[number] - latest) <= 2 + len(edges), "but for rounding"
    assert due == sorted(due)


@given(times, st.floats(0.1, 100))
def test_speed_alone_scales_the_time_since_the_origin(at_us: list[int], speed: float) -> None:
    at_us = sorted(at_us)
    due = in_pieces(Pacer(Schedule(7_000_000, 1_000_000, speed, 0.0)), at_us, [])
    for one, when in zip(at_us, due, strict=True):
        assert abs(when - (7_000_000 + (one - 1_000_000) / speed)) <= 1


def test_a_rate_alone_spaces_messages_and_makes_up_for_nothing() -> None:
    pacer = Pacer(Schedule(1_000_000, 0, 0.0, 1000.0))
    first = pacer.due(np.zeros(3, np.int64), 0)
    assert first.tolist() == [1_001_000, 1_002_000, 1_003_000]
    late = pacer.due(np.zeros(2, np.int64), 9_000_000)
    assert late.tolist() == [8_999_000, 9_000_000]


def test_pauses_are_cut_to_the_longest_that_is_kept() -> None:
    """0 s, 1 s, then nothing until 11 s, then 12 s: with 2 s at most, the rest comes 8 s sooner."""
    pauses = cut_pauses([(11_000_000, 10_000_000), (12_000_000, 1_000_000)], 2_000_000)
    assert pauses == [(11_000_000, 8_000_000)]
    pacer = Pacer(Schedule(0, 0, 1.0, 0.0, pauses))
    at_us = np.array([0, 1_000_000, 11_000_000, 12_000_000], np.int64)
    assert pacer.due(at_us, 0).tolist() == [0, 1_000_000, 3_000_000, 4_000_000]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), st.sampled_from([50, 99, 100]))
def test_percentiles_are_2_percent_exact_whatever_was_merged(late: list[int], percent: int) -> None:
    whole, merged = Lateness(), Lateness()
    whole.add(np.array(late))
    for one in late:
        other = Lateness()
        other.add(np.array([one]))
        merged.merge(other)
    assert merged.counts == whole.counts
    rank = -(-percent * len(late) // 100)
    exact = max(1, sorted(late)[rank - 1])
    assert exact <= whole.percentile_us(percent) * 1.000001 <= exact * LATENESS_BASE * 1.000002


def test_nothing_sent_is_not_late() -> None:
    assert Lateness().percentile_us(99) == 0.0


@pytest.mark.parametrize(
    ("speed", "rate"), [(1e-300, 0.0), (1e-12, 0.0), (0.0, 1e-300), (1.0, 1e-13)]
)
def test_what_would_be_due_after_all_time_is_not_due_at_once(speed: float, rate: float) -> None:
    """Found: it went beyond the largest number, and came out as the least, or as a stack."""
    pacer = Pacer(Schedule(5_000, 1_000, speed, rate))
    due = pacer.due(np.array([1_000, 2_000_000, 3_000_000]), 0).tolist()
    due += pacer.due(np.array([4_000_000]), 0).tolist()
    assert due[1] > 1 << 59
    assert due == sorted(due)
