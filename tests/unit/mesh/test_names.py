"""Names: what is one, and what is said of what is not."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.errors import InvalidName
from mesh.names import (
    check_cluster,
    check_existing_pattern,
    check_existing_topic,
    check_pattern,
    check_topic,
    split_target,
)
from mesh.service import Request, Service


async def answer(request: Request) -> bytes:
    return request.payload


def test_targets() -> None:
    assert split_target("databases") == ("databases", "default")
    assert split_target("databases/get") == ("databases", "get")


@pytest.mark.parametrize("bad", ["", "/x", "UP", "a/", "a/b/c", "a b", "-a", "a" * 64])
def test_bad_targets(bad: str) -> None:
    with pytest.raises(InvalidName):
        split_target(bad)


@pytest.mark.parametrize(
    "bad", ["", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\x00", "x" * 256]
)
def test_bad_topics(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_topic(bad)


@pytest.mark.parametrize("good", [">", "*", "a.*.b", "a.>", "ümlaut.ok", "a#.#b", "a+.+b"])
def test_good_patterns(good: str) -> None:
    assert check_pattern(good) == tuple(good.split("."))


@pytest.mark.parametrize(
    "bad", ["", "a.>.b", "a.b*", "a..>", "a >", "#", "a.#", "#.b", "+", "a.+", "+.>"]
)
def test_bad_patterns(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_pattern(bad)


def test_what_earlier_members_have_asked_for_is_read_all_the_same() -> None:
    """And a topic may have such a token."""
    assert check_existing_pattern("a.#") == ("a", "#")
    assert check_topic("a.#") == b"a.#"
    assert check_existing_pattern("+.b") == ("+", "b")
    assert check_topic("+.b") == b"+.b"
    with pytest.raises(InvalidName):
        check_existing_pattern("a.b*")


@pytest.mark.parametrize("code", [0, 0x1F, 0x7F, 0x80, 0x85, 0x9B, 0x9F])
def test_control_characters_are_in_no_name(code: int) -> None:
    """Found: those from U+0080 on were, and a terminal may obey U+009B. Earlier members use them."""
    name = f"a.b{chr(code)}"
    for check in (check_topic, check_pattern):
        with pytest.raises(InvalidName, match="control characters"):
            check(name)
    if code > 0x7F and code != 0x85:  # That one is white space.
        assert check_existing_pattern(name) == tuple(name.split("."))
        assert check_existing_topic(name) == name.encode()
    else:
        for read in (check_existing_pattern, check_existing_topic):
            with pytest.raises(InvalidName):
                read(name)
    assert check_topic("a.b\xa1") == b"a.b\xc2\xa1"


@pytest.mark.parametrize("bad", [None, 7, b"bytes", [], {}])
def test_names_are_strings(bad: Any) -> None:
    checks = (
        check_cluster,
        check_topic,
        check_pattern,
        check_existing_pattern,
        check_existing_topic,
        split_target,
    )
    for check in checks:
        with pytest.raises(InvalidName):
            check(bad)


@pytest.mark.parametrize(
    ("check", "bad", "says"),
    [
        (check_cluster, "-shop", "must start with a letter or digit"),
        (check_topic, "a b", "white space, control characters, \\* or >"),
        (check_pattern, "a.>.b", "> the last one"),
        (check_pattern, "a.#", "# is not a wildcard here .* want > at the end"),
        (check_cluster, "", "is empty; want 1 to 63 of a-z 0-9 . _ -"),
        (check_cluster, "no body!", "' ', character 3, is not allowed; want"),
        (check_cluster, "Shop", "'S', character 1, is upper case; want"),
        (check_cluster, "Übel", "'Ü', character 1, is not allowed; want"),
        (check_cluster, "x" * 64, "too long, 64 characters of 63; want"),
        (split_target, "shop/-x", "must start with a letter or digit"),
        (split_target, "shop/", "endpoint '': is empty"),
        (split_target, "shop/a/b", "'/', character 2, is not allowed; want 1 to 63 of A-Z a-z"),
        (lambda name: Service("shop").request(name)(answer), "no body!", "' ', character 3"),
    ],
)
def test_errors_say_what_is_allowed(check: Any, bad: str, says: str) -> None:
    with pytest.raises(InvalidName, match=says):
        check(bad)
