"""What errors say, where that depends on more than their numbers."""

from __future__ import annotations

import pytest

from mesh.errors import CLUSTERS_SHOWN, NoMembers

MANY = tuple("abcdefg")


@pytest.mark.parametrize(
    ("present", "hint"),
    [
        ((), "no other members either: see `mesh doctor`"),
        (("depot",), "there are members of depot"),
        (("depot", "shop"), "its members cannot be asked now"),
        (MANY[:CLUSTERS_SHOWN], "there are members of a, b, c, d, e"),
        (MANY, "there are members of a, b, c, d, e, ..."),
    ],
)
def test_no_members_says_who_is_there(present: tuple[str, ...], hint: str) -> None:
    error = NoMembers("shop", 2.0, present)
    assert str(error) == f"no members of cluster 'shop' after 2.0 s; {hint}"
