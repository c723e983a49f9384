"""The log of handlers' failures: each kind once, and a bounded number of kinds."""

from __future__ import annotations

import logging

import pytest

from mesh.failure_log import FAILURE_KINDS_MAX, FailureLog


def test_each_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for what, error in [("a", KeyError()), ("a", KeyError()), ("b", KeyError()), ("a", OSError())]:
        failures.log(what, error)
    assert [one.getMessage().split()[0] for one in caplog.records] == ["a", "b", "a"]


def test_that_further_kinds_are_not_logged_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Found: an operator saw no error of a new kind, and could not know that it would not be logged."""
    failures = FailureLog()
    for number in range(FAILURE_KINDS_MAX):
        failures.log(f"handler {number}", ValueError())
    caplog.clear()
    failures.log("handler 0", ValueError())
    assert not caplog.records  # A known kind: nothing is lost.
    for _ in range(2):
        failures.log("one more", ValueError())
        failures.log("another one", KeyError())
    said = "one more failed: ValueError; 1000 kinds of failures were logged, further kinds are not"
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [(logging.ERROR, said)]
