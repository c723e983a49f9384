"""Interest in topics: a trie of patterns, and the credit of each peer's subscription.

    orders.*.created   `*` stands for exactly one token
    orders.>           a last `>` stands for one or more

The trie holds subscriptions of peers and of this node alike; a topic's matches are computed once
and kept until `version` changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .link import Link

BLOCK, DROP_OLDEST, DROP_NEWEST = "block", "drop_oldest", "drop_newest"
POLICIES = (DROP_OLDEST, DROP_NEWEST, BLOCK)

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class RemoteSubscription:
    """A subscription of a peer, as its publishers know it.

    With `block`, `credit_bytes` is what the subscriber still has room for from this publisher.
    """

    link: Link
    ident: int
    pattern: tuple[str, ...]
    policy: str
    window_bytes: int
    credit_bytes: int

    def has_room(self, size_bytes: int) -> bool:
        # One batch larger than the whole window would never fit: let it through when nothing is
        # outstanding.
        return size_bytes <= self.credit_bytes or self.credit_bytes >= self.window_bytes


@dataclass(slots=True)
class Branch(Generic[V]):
    children: dict[str, Branch[V]] = field(default_factory=dict)
    exact: list[V] = field(default_factory=list)
    tail: list[V] = field(default_factory=list)
    """Values whose pattern ends in `>` here."""

    def __bool__(self) -> bool:
        return bool(self.children or self.exact or self.tail)


class Interest(Generic[V]):
    """Maps patterns to values. Adding and removing a value changes `version`."""

    def __init__(self) -> None:
        self._root: Branch[V] = Branch()
        self.version = 0

    def add(self, pattern: tuple[str, ...], value: V) -> None:
        branch = self._root
        has_tail = pattern[-1] == ">"
        for token in pattern[:-1] if has_tail else pattern:
            branch = branch.children.setdefault(token, Branch())
        (branch.tail if has_tail else branch.exact).append(value)
        self.version += 1

    def remove(self, pattern: tuple[str, ...], value: V) -> None:
        """Remove a value that `add` has added. Raises ValueError if it is not there."""
        path: list[tuple[Branch[V], str]] = []
        branch = self._root
        has_tail = pattern[-1] == ">"
        for token in pattern[:-1] if has_tail else pattern:
            path.append((branch, token))
            found = branch.children.get(token)
            if found is None:
                raise ValueError(f"{'.'.join(pattern)} is not in the trie")
            branch = found
        (branch.tail if has_tail else branch.exact).remove(value)
        for parent, token in reversed(path):
            if parent.children[token]:
                break
            del parent.children[token]
        self.version += 1

    def match(self, topic: str) -> list[V]:
        """Return the values of all patterns that match `topic`, in no particular order, once for each `add`."""
        found: list[V] = []
        branches = [self._root]
        for token in topic.split("."):
            next_branches: list[Branch[V]] = []
            for branch in branches:
                found += branch.tail
                for name in (token, "*"):
                    child = branch.children.get(name)
                    if child is not None:
                        next_branches.append(child)
            branches = next_branches
            if not branches:
                return found
        for branch in branches:
            found += branch.exact
        return found
