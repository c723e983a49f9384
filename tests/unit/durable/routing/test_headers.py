"""Matching by headers, against what RabbitMQ's documentation says, word by word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.definitions import BindingDefinition, sorted_arguments
from durable.routing.headers import HeadersRule

names = st.sampled_from(["a", "b", "x-c", "x-d", "x", "xy"])
values = st.sampled_from([None, True, False, 0, 1, 1.0, "", "1", "x"])
tables = st.dictionaries(names, values, max_size=4)
matches = st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])


def rule_of(arguments: dict[str, Any]) -> HeadersRule:
    return HeadersRule(
        BindingDefinition(exchange="e", destination="q", arguments=sorted_arguments(arguments))
    )


def oracle(arguments: dict[str, Any], match: str | None, headers: dict[str, Any]) -> bool:
    met = []
    for name in arguments:
        if name[:2] == "x-" and match in (None, "all", "any"):
            continue
        if name not in headers:
            met.append(False)
        elif arguments[name] is None:
            met.append(True)
        else:
            met.append(repr(arguments[name]) == repr(headers[name]))
    return any(met) if match in ("any", "any-with-x") else all(met)


@given(tables, matches, tables)
def test_matches_what_the_documentation_says(
    arguments: dict[str, Any], match: str | None, headers: dict[str, Any]
) -> None:
    said = {} if match is None else {"x-match": match}
    assert rule_of({**arguments, **said}).matches(headers) == oracle(arguments, match, headers)


@pytest.mark.parametrize(
    ("arguments", "headers", "found"),
    [
        ({}, {}, True), ({"x-match": "any"}, {"a": 1}, False),
        ({"a": None}, {}, False), ({"a": None}, {"a": None}, True), ({"a": None}, {"a": 5}, True),
        ({"a": 5}, {"a": None}, False), ({"a": 1}, {"a": True}, False), ({"a": 1}, {"a": 1.0}, False),
        ({"x-a": 1}, {}, True), ({"x-a": 1, "x-match": "all-with-x"}, {}, False),
        ({"x-a": 1, "x-match": "any"}, {"x-a": 1}, False),
        ({"x-a": 1, "x-match": "any-with-x"}, {"x-a": 1}, True),
        ({"a": 1, "b": 2, "x-match": "any"}, {"b": 2}, True),
        ({"a": 1, "b": 2, "x-match": "all"}, {"b": 2}, False),
        ({"x-match": "all-with-x"}, {"x-match": "other"}, True),
    ],
)  # fmt: skip
def test_corners(arguments: dict[str, Any], headers: dict[str, Any], found: bool) -> None:
    assert rule_of(arguments).matches(headers) is found
