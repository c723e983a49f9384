"""Matching by message headers.

`all` (the default) matches if every argument of the binding matches; `any` matches if at least one does, so
with `any` a binding without arguments never matches. Arguments whose names begin with `x-` are ignored, unless
the match is `all-with-x` or `any-with-x`; `x-match` itself is always ignored. An argument matches a header of
the same name with the same value of the same type, as in RabbitMQ: 1, 1.0 and true are three different values.
An argument of None matches any header of that name, also one whose value is None. A missing header matches no
argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..definitions import (
    MATCH_ALL,
    MATCH_ALL_WITH_X,
    MATCH_ANY,
    MATCH_ANY_WITH_X,
    X_MATCH,
    BindingDefinition,
)

ABSENT = object()
IGNORED_PREFIX = "x-"


class HeadersRule:
    """The arguments of a headers binding, prepared for matching."""

    __slots__ = ("_any", "_wanted")

    def __init__(self, binding: BindingDefinition) -> None:
        arguments = dict(binding.arguments)
        match = arguments.pop(X_MATCH, MATCH_ALL)
        with_x = match in (MATCH_ALL_WITH_X, MATCH_ANY_WITH_X)
        self._any = match in (MATCH_ANY, MATCH_ANY_WITH_X)
        self._wanted = tuple(
            (name, value)
            for name, value in arguments.items()
            if with_x or not name.startswith(IGNORED_PREFIX)
        )

    def matches(self, headers: Mapping[str, Any]) -> bool:
        any_ = self._any
        for name, value in self._wanted:
            found = headers.get(name, ABSENT)
            if value is None:
                met = found is not ABSENT
            else:
                met = type(found) is type(value) and found == value
            if met is any_:
                return any_
        return not any_
