"""Subscriptions of one node that share their messages: each message goes to only one of those that match.

Of those that match when a message arrives, the one that began first gets it. A subscription that ends keeps
the messages that wait in it; later ones go to the next subscription. So nothing is lost or delivered twice,
and of each topic all messages in an earlier subscription are older than those in a later one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar


class Sharing:
    """A group of subscriptions that share: those that were given the same object."""

    def __init__(self) -> None:
        self.members: set[Any] = set()
        """Subscriptions of the group that have not ended."""


class Sharer(Protocol):
    """What this module uses of a subscription."""

    @property
    def ident(self) -> int:
        """Number of the subscription; those that began later have higher ones."""

    @property
    def sharing(self) -> Sharing | None:
        """Its group; None: it gets all messages that match it."""


S = TypeVar("S", bound=Sharer)


def one_per_group(matching: Iterable[S]) -> list[S]:
    """Return those of the matching subscriptions that get the messages: the first of each group, and all without
    a group."""
    found: list[S] = []
    first: dict[Sharing, S] = {}
    for one in matching:
        if one.sharing is None:
            found.append(one)
        elif one.ident < first.setdefault(one.sharing, one).ident:
            first[one.sharing] = one
    return found + list(first.values())


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether there are topics that both patterns match."""
    for its, others in zip(one, other, strict=False):
        if ">" in (its, others):
            return True
        if its != others and "*" not in (its, others):
            return False
    return len(one) == len(other)
