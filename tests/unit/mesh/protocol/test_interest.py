from __future__ import annotations

import pytest

from mesh.protocol.interest import BLOCK, Interest, RemoteSubscription
from tests.machines import make_link


def interest(*patterns: str) -> Interest[str]:
    trie: Interest[str] = Interest()
    for pattern in patterns:
        trie.add(tuple(pattern.split(".")), pattern)
    return trie


@pytest.mark.parametrize(
    ("topic", "matching"),
    [
        ("orders", ["*", "orders", ">"]),
        ("orders.eu", ["orders.*", "orders.>", "*.eu", ">", "orders.eu"]),
        ("orders.eu.created", ["orders.>", "orders.*.created", ">", "orders.eu.>"]),
        ("orders.us.created", ["orders.>", "orders.*.created", ">"]),
        ("orders.created", ["orders.*", "orders.>", ">"]),
        ("other", ["*", ">"]),
        ("a.b.c.d", [">"]),
    ],
)
def test_matches(topic: str, matching: list[str]) -> None:
    trie = interest(
        "*", "orders", ">", "orders.*", "orders.>", "*.eu", "orders.eu", "orders.*.created",
        "orders.eu.>",
    )  # fmt: skip
    assert sorted(trie.match(topic)) == sorted(matching)


def test_a_tail_wants_at_least_one_token_more() -> None:
    assert interest("a.>").match("a") == []


def test_a_value_added_twice_is_found_twice_and_removed_once_at_a_time() -> None:
    trie = interest("a.*", "a.*")
    assert trie.match("a.b") == ["a.*", "a.*"]
    trie.remove(("a", "*"), "a.*")
    assert trie.match("a.b") == ["a.*"]


def test_every_change_moves_the_version_and_no_failure_does() -> None:
    trie = interest("a")
    before = trie.version
    trie.add(("b", ">"), "b.>")
    trie.remove(("a",), "a")
    assert trie.version == before + 2
    for pattern, value in ((("a",), "a"), (("b", ">"), "other"), (("b",), "b.>"), (("c", "d"), "")):
        with pytest.raises(ValueError, match=r"not in|x not in"):
            trie.remove(pattern, value)
    assert trie.version == before + 2
    assert trie.match("b.c") == ["b.>"]


def test_nothing_is_kept_of_what_was_removed() -> None:
    """Subscribers come and go for months: the trie must not remember every pattern there ever was."""
    patterns = ["a.b.c", "a.b.>", "a.*", "a", ">", "x.*.y"]
    trie = interest(*patterns)
    for pattern in patterns:
        trie.remove(tuple(pattern.split(".")), pattern)
    assert not trie._root


@pytest.mark.parametrize(
    ("credit", "size", "may"),
    [(100, 100, True), (100, 101, True), (99, 99, True), (99, 100, False), (-1, 0, False)],
)
def test_credit_and_the_batch_that_is_larger_than_all_of_it(
    credit: int, size: int, may: bool
) -> None:
    subscription = RemoteSubscription(make_link(), 1, ("a",), BLOCK, 100, credit)
    assert subscription.has_room(size) is may
