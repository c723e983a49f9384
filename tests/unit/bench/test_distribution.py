"""Exact quantiles, how deep they go, and the text that plotters of HdrHistogram read."""

from __future__ import annotations

import numpy as np
import pytest

from bench.latency.distribution import Distribution
from bench.latency.hgrm import shares, text

THOUSAND = Distribution.of(np.arange(1, 1001, dtype=np.int64)[::-1] * 1_000_000)


def test_quantiles_are_samples() -> None:
    assert [THOUSAND.at(share) // 1_000_000 for share in (0, 0.001, 0.5, 0.99, 1)] == [
        1, 1, 500, 990, 1000,
    ]  # fmt: skip
    assert THOUSAND.max_ns == 1000 * 1_000_000


def test_only_quantiles_with_ten_samples_beyond_are_named() -> None:
    assert THOUSAND.deepest == pytest.approx(0.99)
    assert list(THOUSAND.named()) == ["p50", "p90", "p99", "max"]
    assert list(Distribution.of(np.ones(5, dtype=np.int64)).named()) == ["max"]


def test_the_text_has_the_four_columns_and_the_three_last_lines() -> None:
    lines = text(THOUSAND).splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    assert lines[1] == ""
    body = [line.split() for line in lines[2:-3]]
    assert body[0] == ["1.000000", "0.000000000000", "1", "1.00"]
    assert body[-1] == ["1000.000000", "1.000000000000", "1000"]
    for value, share, counted, inverse in body[:-1]:
        assert float(inverse) == pytest.approx(1 / (1 - float(share)), abs=0.01)
        assert float(value) == float(counted)
    assert lines[-3].startswith("#[Mean    =      500.500, StdDeviation   =      288.675]")
    assert "Total count    =         1000]" in lines[-2]
    assert lines[-1].startswith("#[Buckets =")


def test_shares_ascend_and_halve_what_is_left() -> None:
    found = list(shares(1_000_000))
    assert found == sorted(found)
    assert found[:6] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert 1 / (1 - found[-1]) > 500_000
