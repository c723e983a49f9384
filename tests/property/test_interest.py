"""The trie of patterns against a list that is asked pattern by pattern, by regular expression."""

from __future__ import annotations

import re

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesh.protocol.interest import Interest

Pattern = tuple[str, ...]

tokens = st.sampled_from(["a", "b", "a.b".replace(".", ""), "ä"])
topics = st.lists(tokens, min_size=1, max_size=5).map(".".join)
patterns = st.builds(
    lambda body, tail: (*body, ">") if tail or not body else tuple(body),
    st.lists(st.one_of(tokens, st.just("*")), max_size=4), st.booleans(),
)  # fmt: skip


def matches(pattern: Pattern, topic: str) -> bool:
    """The words of interest.py as a regular expression."""
    words = {"*": r"[^.]+", ">": r".+"}
    return re.fullmatch(r"\.".join(words.get(one, one) for one in pattern), topic) is not None


class Patterns(RuleBasedStateMachine):
    """Add, remove and ask, in any order, the same pattern and value more than once."""

    @initialize()
    def start(self) -> None:
        self.trie: Interest[int] = Interest()
        self.listed: list[tuple[Pattern, int]] = []
        self.changes = 0

    @rule(pattern=patterns, value=st.integers(0, 3))
    def add(self, pattern: Pattern, value: int) -> None:
        self.trie.add(pattern, value)
        self.listed.append((pattern, value))
        self.changes += 1

    @rule(pattern=patterns, value=st.integers(0, 3))
    def add_again(self, pattern: Pattern, value: int) -> None:
        if self.listed:
            self.add(*self.listed[value % len(self.listed)])

    @rule(place=st.integers(0, 100))
    def remove(self, place: int) -> None:
        if self.listed:
            self.trie.remove(*self.listed.pop(place % len(self.listed)))
            self.changes += 1

    @rule(pattern=patterns, value=st.integers(0, 9))
    def remove_what_may_not_be_there(self, pattern: Pattern, value: int) -> None:
        try:
            self.trie.remove(pattern, value)
        except ValueError:
            assert (pattern, value) not in self.listed
        else:
            self.listed.remove((pattern, value))
            self.changes += 1

    @rule(topic=topics)
    def ask(self, topic: str) -> None:
        dumb = [value for pattern, value in self.listed if matches(pattern, topic)]
        assert sorted(self.trie.match(topic)) == sorted(dumb)

    @invariant()
    def every_change_is_seen(self) -> None:
        if hasattr(self, "trie"):
            assert self.trie.version == self.changes
            assert bool(self.trie._root) == bool(self.listed), "nothing is kept of what is gone"


TestPatterns = Patterns.TestCase
