"""`mesh replay` before there is a Spark."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from spark.commands.replay import _run
from spark.replay.plan import ReplayPlan, read_destination


class Started(Exception):
    """In place of a JVM."""


@pytest.mark.parametrize(
    ("terminal", "as_json", "said"),
    [
        (True, False, "mesh: starting Spark, up to a minute\n"),
        (True, True, ""),
        (False, False, ""),
    ],
)
def test_a_terminal_is_told_what_it_waits_for(
    terminal: bool, as_json: bool, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def start(*_: Any, **__: Any) -> None:
        raise Started

    monkeypatch.setattr("spark.sessions.session", start)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    plan = ReplayPlan(directory="data", to=read_destination("broker2"))
    with pytest.raises(Started):
        _run(Namespace(master="local[1]", json=as_json), plan, {}, None)
    assert capsys.readouterr().err == said
