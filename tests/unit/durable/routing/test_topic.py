"""The trie of topic patterns against a recursive definition of what they mean."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.routing.topic import Branch, TopicTrie

WORDS = ["a", "b", "", "*", "#"]
keys = st.lists(st.sampled_from(WORDS), max_size=6).map(".".join)
patterns = st.lists(st.sampled_from([*WORDS, "#", "*"]), max_size=6).map(".".join)


def oracle(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return oracle(pattern[1:], key) or (bool(key) and oracle(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and oracle(pattern[1:], key[1:])


def words(text: str) -> list[str]:
    return text.split(".") if text else []


@given(st.lists(patterns, max_size=8), keys)
@example(["#.#"], "")
@example(["a.#.b", "*.#"], "a.b")
def test_finds_what_the_definition_says(listed: list[str], key: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in listed:
        trie.add(pattern, pattern)
    assert trie.match(key) == {one for one in listed if oracle(words(one), words(key))}


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("*", "", False), ("#", "", True), ("", "", True), ("", "a", False),
        ("*", "a", True), ("*", "a.b", False), ("*.*", ".", True),
        ("a.#", "a", True), ("a.#", "a.b.c", True), ("a.#", "ab", False),
        ("#.a", "a", True), ("#.a", "b.a", True), ("#.a", "a.b", False),
        ("a*", "a*", True), ("a*", "ab", False), ("a.#.*", "a", False), ("a.*.#", "a.b", True),
    ],
)  # fmt: skip
def test_as_amqp_has_it(pattern: str, key: str, matches: bool) -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(pattern, 1)
    assert trie.match(key) == ({1} if matches else set())


class Counting(dict[str, Branch[int]]):
    """Children that count how often somebody looks."""

    looks = 0

    def get(self, key: str, default: object = None) -> Branch[int] | None:  # type: ignore[override]
        Counting.looks += 1
        return super().get(key)


def test_many_wildcards_cost_words_times_branches() -> None:
    """A backtracking matcher would need more steps than there are atoms."""
    trie: TopicTrie[int] = TopicTrie()
    pattern = ".".join(["#"] * 60 + ["z"])
    trie.add(pattern, 1)
    trie.add(".".join(["#", "*"] * 30 + ["z"]), 2)
    branches, ahead = 0, [trie._root]
    while ahead:
        branch = ahead.pop()
        branches += 1
        branch.children = Counting(branch.children)
        ahead += branch.children.values()
    Counting.looks = 0
    assert trie.match(".".join(["a"] * 100)) == set()
    assert 0 < Counting.looks <= 4 * 101 * branches
    assert trie.match(".".join(["a"] * 99 + ["z"])) == {1, 2}


@settings(max_examples=30)
class Patterns(RuleBasedStateMachine):
    """Add, remove and ask in any order, also the same thing more than once."""

    @initialize()
    def start(self) -> None:
        self.trie: TopicTrie[int] = TopicTrie()
        self.listed: Counter[tuple[str, int]] = Counter()

    @rule(pattern=patterns, value=st.integers(0, 2))
    def add(self, pattern: str, value: int) -> None:
        self.trie.add(pattern, value)
        self.listed[pattern, value] += 1

    @rule(place=st.integers(0, 100))
    def add_again(self, place: int) -> None:
        if self.listed:
            self.add(*sorted(self.listed)[place % len(self.listed)])

    @rule(place=st.integers(0, 100))
    def remove(self, place: int) -> None:
        if self.listed:
            one = sorted(self.listed)[place % len(self.listed)]
            self.trie.remove(*one)
            self.listed -= Counter([one])

    @rule(key=keys)
    def match(self, key: str) -> None:
        wanted = {value for one, value in self.listed if oracle(words(one), words(key))}
        assert self.trie.match(key) == wanted

    @invariant()
    def nothing_is_left_of_nothing(self) -> None:
        assert bool(self.trie._root) == bool(self.listed)


TestPatterns = Patterns.TestCase


def test_removing_what_is_not_there_is_an_error() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.add("a.b", 1)
    for pattern, value in (("a", 1), ("a.b", 2), ("c", 1)):
        with pytest.raises(KeyError):
            trie.remove(pattern, value)
    assert trie.match("a.b") == {1}
