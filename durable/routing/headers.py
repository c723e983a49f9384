"""Matching by headers.

`all` (if nothing is said): every argument of the binding is met. `any`: at least one is, so a binding
without arguments never matches. Names that begin with `x-` are not looked at, unless the match is
`all-with-x` or `any-with-x`; `x-match` itself never is. An argument is met by a header of its name with
the same value of the same type, as in RabbitMQ: 1, 1.0 and true are three values. The argument None is
met by any header of its name, None too; a header that is absent meets nothing.
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
UNSEEN = "x-"


class HeadersRule:
    """A binding's arguments, ready to be compared."""

    __slots__ = ("_any", "_wanted")

    def __init__(self, binding: BindingDefinition) -> None:
        arguments = dict(binding.arguments)
        match = arguments.pop(X_MATCH, MATCH_ALL)
        with_x = match in (MATCH_ALL_WITH_X, MATCH_ANY_WITH_X)
        self._any = match in (MATCH_ANY, MATCH_ANY_WITH_X)
        self._wanted = tuple(
            (name, value)
            for name, value in arguments.items()
            if with_x or not name.startswith(UNSEEN)
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
