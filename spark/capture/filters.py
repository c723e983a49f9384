"""Pushes filters of a query down: they narrow topics and times, so that less is read.

Spark applies every filter again, so one that is not understood here costs time, but rows stay right.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from .plan import Times
from .topics import Topics

TOPIC, TIMESTAMP = ("topic",), ("timestamp",)


def narrow(filters: Iterable[Filter], topics: Topics, times: Times) -> Times:
    """Add to `topics` what the filters say about topics, and return `times` narrowed by them."""
    low, high = times
    for one in filters:
        attribute = getattr(one, "attribute", None)
        value = getattr(one, "value", None)
        if attribute == TOPIC:
            _narrow_topics(topics, one, value)
        elif attribute == TIMESTAMP and isinstance(value, datetime):
            time_us = round(value.timestamp() * 1e6)
            if isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
                low = max(low, time_us)
            if isinstance(one, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual):
                high = min(high, time_us + 1)
    return Times(low, high)


def _narrow_topics(topics: Topics, one: Filter, value: object) -> None:
    if isinstance(one, EqualTo | EqualNullSafe) and isinstance(value, str):
        topics.allowed_sets.append(frozenset({value}))
    elif isinstance(one, In) and isinstance(value, list | tuple):
        topics.allowed_sets.append(frozenset(value))
    elif isinstance(one, StringStartsWith) and isinstance(value, str):
        topics.prefixes.append(value)
