"""What is said of permissions."""

from __future__ import annotations

from durable.commands.administering import _permission_line


def test_a_permission_that_cannot_be_read_is_shown_with_what_it_grants() -> None:
    one = {"cluster": "shop", "configure": "(", "write": "", "read": "jobs"}
    assert _permission_line(one) == ("shop: configure '(' (invalid, grants nothing), read 'jobs'")
    assert _permission_line({"cluster": "crm", "read": ""}) == "crm: nothing"


def test_of_a_broker_that_knows_no_capture_every_pattern_is_shown_as_allowed() -> None:
    one = {"cluster": "shop", "configure": "s"}
    assert _permission_line(one) == "shop: configure 's', capture '.*'"
    assert _permission_line({**one, "capture": ""}) == "shop: configure 's'"
    assert _permission_line({**one, "capture": "t.*"}) == "shop: configure 's', capture 't.*'"
