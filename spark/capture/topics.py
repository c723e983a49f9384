"""Which topics are wanted, according to options and to the filters of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(slots=True)
class Topics:
    """Accepts the topics that every one of its parts accepts; picklable."""

    patterns: tuple[str, ...] | None = None
    """Topics, or patterns as orders.*.created and orders.>, of which one must match."""
    expression: str | None = None
    """A regular expression for the whole topic."""
    allowed_sets: list[frozenset[str]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)

    @property
    def accepts_all(self) -> bool:
        return (
            self.patterns is None
            and self.expression is None
            and not (self.allowed_sets or self.prefixes)
        )

    def __call__(self, topic: str) -> bool:
        return (
            all(topic in one for one in self.allowed_sets)
            and all(topic.startswith(one) for one in self.prefixes)
            and (self.expression is None or re.fullmatch(self.expression, topic) is not None)
            and (self.patterns is None or any(_matches(one, topic) for one in self.patterns))
        )


def _matches(pattern: str, topic: str) -> bool:
    tokens, found = pattern.split("."), topic.split(".")
    if tokens[-1] == ">":
        tokens.pop()
        if len(found) <= len(tokens):
            return False
        found = found[: len(tokens)]
    return len(tokens) == len(found) and all(
        token in ("*", one) for token, one in zip(tokens, found, strict=True)
    )
