"""Topic patterns of AMQP, in a trie.

    orders.*.created   `*` stands for exactly one word
    orders.#           `#` stands for zero or more words, anywhere

Words are separated by dots and may be empty; the empty key has no words. The trie is walked as a
nondeterministic automaton: a set of branches, each at most once, so matching a key costs at most its number
of words times the trie's branches, however many `#` there are. A key's own word `*` or `#` needs no special
case: it leads only to branches in which the automaton is anyway.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ONE, MANY = "*", "#"

D = TypeVar("D", bound=Hashable)


def split(key: str) -> list[str]:
    """Return the words of a key or pattern."""
    return key.split(".") if key else []


@dataclass(slots=True, eq=False)
class Branch(Generic[D]):
    many: bool = False
    """Reached by `#`: every further word leads back to this branch."""
    children: dict[str, Branch[D]] = field(default_factory=dict)
    destinations: dict[D, int] = field(default_factory=dict)
    """Destinations of the pattern that ends here, and how often each was added with it."""

    def __bool__(self) -> bool:
        return bool(self.children or self.destinations)


class TopicTrie(Generic[D]):
    """A map from topic patterns to destinations."""

    def __init__(self) -> None:
        self._root: Branch[D] = Branch()

    def add(self, pattern: str, destination: D) -> None:
        branch = self._root
        for word in split(pattern):
            child = branch.children.get(word)
            if child is None:
                child = branch.children[word] = Branch(many=word == MANY)
            branch = child
        branch.destinations[destination] = branch.destinations.get(destination, 0) + 1

    def remove(self, pattern: str, destination: D) -> None:
        """Undo one `add`. Raises KeyError if there is none."""
        path: list[tuple[Branch[D], str]] = []
        branch = self._root
        for word in split(pattern):
            path.append((branch, word))
            branch = branch.children[word]
        branch.destinations[destination] -= 1
        if not branch.destinations[destination]:
            del branch.destinations[destination]
        for parent, word in reversed(path):
            if parent.children[word]:
                break
            del parent.children[word]

    def match(self, key: str) -> set[D]:
        """Return the destinations of all matching patterns, each once."""
        branches = {self._root}
        _add_empty_matches(branches)
        for word in split(key):
            next_branches: set[Branch[D]] = set()
            for branch in branches:
                if branch.many:
                    next_branches.add(branch)
                children = branch.children
                if children:
                    child = children.get(word)
                    if child is not None:
                        next_branches.add(child)
                    child = children.get(ONE)
                    if child is not None:
                        next_branches.add(child)
            if not next_branches:
                return set()
            _add_empty_matches(next_branches)
            branches = next_branches
        found: set[D] = set()
        for branch in branches:
            found.update(branch.destinations)
        return found


def _add_empty_matches(branches: set[Branch[D]]) -> None:
    """Add the branches that `#` leads to when it matches no word."""
    for branch in tuple(branches):
        child = branch.children.get(MANY)
        while child is not None and child not in branches:
            branches.add(child)
            child = child.children.get(MANY)
