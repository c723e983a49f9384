"""The error tree, and what importing loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from security import errors
from security.errors import Ahead, BadAnnouncement, CannotAnnounce, Expired, NoKey, SecurityError


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = set(str(errors.__doc__).replace("├──", "").replace("└──", "").split())
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]  # fmt: skip
    assert len(classes) >= 11
    assert {one.__name__ for one in classes} <= drawn
    assert all(issubclass(one, SecurityError) for one in classes)
    children = {one.__name__ for one in BadAnnouncement.__subclasses__()}
    assert children == {"Malformed", "Untrusted", "Forged", "Expired", "Ahead"}
    assert not issubclass(CannotAnnounce, BadAnnouncement), "our own fault is not a peer's"


def test_the_abstract_one_is_not_raised() -> None:
    with pytest.raises(AssertionError, match="which kind"):
        BadAnnouncement("x")


def test_numbers_are_attributes() -> None:
    assert Expired(2.5, "node x").seconds == Ahead(2.5, "node x").seconds == 2.5
    assert NoKey("db").cluster == "db"
    assert "`mesh keys new-network`" in str(NoKey("db"))
    assert "`mesh keys new-cluster db`" in str(NoKey("db"))


def test_importing_is_cheap() -> None:
    for module, heavy in (("errors", "nacl"), ("names", "nacl"), ("keyring", "security.files")):
        code = f"import sys, security.{module}; sys.exit({heavy!r} in sys.modules or 'msgpack' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
