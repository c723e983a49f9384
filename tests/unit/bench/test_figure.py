"""Medians, ratios, percentiles, marks, and the shape of the file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figure import Bound, Round, document, make_figure, percentile


def test_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_the_medians() -> None:
    rounds = [Round(10.0, 1.0), Round(20.0, 10.0), Round(30.0, 20.0)]
    figure = make_figure("x", "msg/s", rounds)
    assert (figure.value, figure.reference) == (20.0, 10.0)
    assert figure.ratio == 2.0
    assert [run["ratio"] for run in figure.runs] == [10.0, 2.0, 1.5]
    drifting = make_figure("x", "msg/s", [Round(1.0, 1.0), Round(2.0, 4.0), Round(9.0, 3.0)])
    assert drifting.ratio == 1.0  # 2 / 3 if the medians were divided.


def test_a_round_that_lost_messages_leaves_no_value_and_does_not_hold() -> None:
    bound = Bound("ratio", "at least", 1.0)
    figure = make_figure("x", "msg/s", [Round(9.0, 1.0), Round(None, 1.0, wrong=17)], [bound])
    assert (figure.value, figure.ratio, figure.holds) == (None, None, False)
    assert figure.wrong == 17


def test_nothing_measured_does_not_hold() -> None:
    figure = make_figure("x", "msg/s", [], [Bound("value", "at most", 1.0)])
    assert (figure.value, figure.holds, figure.runs) == (None, False, [])


def test_reported_figures_neither_hold_nor_fail() -> None:
    figure = make_figure("x", "msg/s", [Round(1.0)])
    assert (figure.mark, figure.holds) == ("reported", None)


@pytest.mark.parametrize(
    ("bound", "holds"),
    [
        (Bound("value", "at least", 6.0), True),
        (Bound("value", "at least", 6.1), False),
        (Bound("value", "at most", 6.0), True),
        (Bound("ratio", "at least", 2.0), True),
        (Bound("ratio", "at most", 1.9), False),
    ],
)
def test_bounds(bound: Bound, holds: bool) -> None:
    assert make_figure("x", "us", [Round(6.0, 3.0)], [bound]).holds is holds


def test_all_bounds_must_hold() -> None:
    bounds = [Bound("value", "at least", 40_000), Bound("ratio", "at least", 3)]
    figure = make_figure("x", "req/s", [Round(50_000.0, 20_000.0)], bounds)
    assert figure.holds is False
    assert figure.mark == "value at least 40,000 and ratio at least 3"


def test_a_ratio_bound_without_a_reference_does_not_hold() -> None:
    assert make_figure("x", "us", [Round(1.0)], [Bound("ratio", "at most", 9)]).holds is False


def test_worst_shows_one_loss_among_clean_rounds() -> None:
    rounds = [Round(0.0, 50.0), Round(3.0, 50.0), Round(0.0, 50.0)]
    figure = make_figure("x", "messages", rounds, [Bound("value", "at most", 0)], worst=True)
    assert (figure.value, figure.holds) == (3.0, False)


@given(st.lists(st.integers(), min_size=1), st.floats(0.01, 1.0))
def test_percentile_agrees_with_its_definition(samples: list[int], share: float) -> None:
    found = percentile(samples, share)
    below = [sample for sample in samples if sample <= found]
    assert found in samples
    assert len(below) >= share * len(samples) - 1e-6
    smaller = [sample for sample in samples if sample < found]
    assert len(smaller) < share * len(samples)


def test_percentiles_people_know() -> None:
    samples = list(range(1, 1001))
    assert percentile(samples, 0.5) == 500
    assert percentile(samples, 0.99) == 990
    assert percentile(samples, 1.0) == 1000
    assert percentile(list(range(1, 101)), 0.07) == 7


def test_the_file_has_exactly_this_shape() -> None:
    figure = make_figure("x", "msg/s", [Round(2.0, 1.0, detail={"cpu_s": {"a": 1.5}})])
    content = json.loads(json.dumps(document({"cpu": "c"}, "abc", [figure])))
    assert content == {
        "machine": {"cpu": "c"},
        "commit": "abc",
        "figures": [
            {
                "name": "x",
                "value": 2.0,
                "unit": "msg/s",
                "reference": 1.0,
                "ratio": 2.0,
                "mark": "reported",
                "holds": None,
                "runs": [
                    {"value": 2.0, "reference": 1.0, "ratio": 2.0, "wrong": 0, "cpu_s": {"a": 1.5}}
                ],
                "failed": 0,
            }
        ],
    }
