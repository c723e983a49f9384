"""Subscriptions of one node that share: each message goes to one of them, though several match.

Of those that match when it arrives, the one that began first gets it. When one ends, it keeps what waits in
it, and what comes from then on goes to the next. So nothing is lost or delivered twice, and of one topic
everything in a subscription that began earlier is older than what is in a later one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar


class Sharing:
    """Which of them share: those that were given the same one of these."""

    def __init__(self) -> None:
        self.members: set[Any] = set()
        """Those that have not ended."""


class Sharer(Protocol):
    """What has to be known of a subscription."""

    @property
    def ident(self) -> int:
        """Lower than of those that began later."""

    @property
    def sharing(self) -> Sharing | None:
        """None: it gets all messages, whoever else does."""


S = TypeVar("S", bound=Sharer)


def one_of_each(matching: Iterable[S]) -> list[S]:
    """Of subscriptions that match a topic: those that get its messages."""
    found: list[S] = []
    first: dict[Sharing, S] = {}
    for one in matching:
        if one.sharing is None:
            found.append(one)
        elif one.ident < first.setdefault(one.sharing, one).ident:
            first[one.sharing] = one
    return found + list(first.values())


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether there are topics that both patterns match."""
    for its, others in zip(one, other, strict=False):
        if ">" in (its, others):
            return True
        if its != others and "*" not in (its, others):
            return False
    return len(one) == len(other)
