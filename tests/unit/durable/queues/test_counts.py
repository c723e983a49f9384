"""Rates are what went through in the last interval, by its length."""

from __future__ import annotations

from durable.queues.counts import NO_RATES, Counts, Rates


def test_rates_of_one_interval_after_the_other() -> None:
    counts = Counts()
    assert counts.rates == NO_RATES
    counts.published, counts.delivered = 100, 50
    counts.sample(5.0)
    assert counts.rates == Rates(20.0, 10.0, 0.0)
    counts.published, counts.acked = 101, 10
    counts.sample(4.0)
    assert counts.rates == Rates(0.25, 0.0, 2.5)
    counts.sample(5.0)
    assert counts.rates == NO_RATES
