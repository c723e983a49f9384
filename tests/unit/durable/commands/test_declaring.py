"""What is made of the settings of what is declared."""

from __future__ import annotations

import re
import shlex

import pytest

from durable.commands.declaring import Given, _field, checked_fields
from durable.errors import InvalidDefinition
from mesh.commands.options import WrongUsage


@pytest.mark.parametrize(
    ("kind", "setting", "write"),
    [
        ("queue", "dead_letter_routing_key=5", """'dead_letter_routing_key="5"'"""),
        ("queue", "dead_letter_routing_key=1e3", """'dead_letter_routing_key="1e3"'"""),
        ("queue", "dead_letter_exchange=true", """'dead_letter_exchange="true"'"""),
        ("exchange", "alternate=7", """'alternate="7"'"""),
    ],
)
def test_who_meant_text_is_told_how_to_write_it(kind: str, setting: str, write: str) -> None:
    """Found: "is 5: want text", of what had been typed as text."""
    with pytest.raises(WrongUsage, match=f"; for .* as text, write {re.escape(write)}$"):
        checked_fields(kind, "jobs", dict([_field(setting)]))
    field, given = _field(shlex.split(write)[0])
    assert given.value == setting.partition("=")[2]
    others = {"dead_letter_exchange": Given("", "")} if kind == "queue" else {}
    assert checked_fields(kind, "jobs", {**others, field: given})[field] == given.value


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("queue", "max_length=-1"), ("queue", "max_length=x"), ("queue", "overflow=5"),
        ("queue", "other=5"), ("queue", "exclusive=1"), ("stream", "patterns=[1]"),
    ],
)  # fmt: skip
def test_what_is_no_better_as_text_is_refused_as_it_is(kind: str, setting: str) -> None:
    with pytest.raises(InvalidDefinition):
        checked_fields(kind, "jobs", dict([_field(setting)]))
