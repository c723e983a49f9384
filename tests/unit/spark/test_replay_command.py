"""`mesh replay` before there is a Spark."""

from __future__ import annotations

import json
import re
import socketserver
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from durable.errors import StoreKeyMissing
from mesh.cli import main
from mesh.errors import InvalidName
from mesh.names import check_topic
from security.files import format_network_secret
from spark.commands.quiet import quiet
from spark.commands.replay import _formatted, _run
from spark.errors import CaptureError
from spark.replay.errors import ReplayFailed
from spark.replay.plan import ReplayPlan, read_destination
from spark.replay.preflight import check_exists
from spark.replay.replay import INVALID_TOPIC, _write
from spark.sink.noting import TaskProgress, write_progress
from spark.sink.report import Counts, Report
from tests.captures import Captured, jobs_and_audit
from tests.logs import NEW_SECRET, encryption
from tests.stores import secret_file


class FakeSpark:
    """One whose job ends by `error` when its first task has noted 300 messages, and 700 left out."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def stop(self) -> None:
        if not isinstance(self._error, KeyboardInterrupt):
            raise ConnectionRefusedError(111, "Connection refused")  # As of a JVM that is no more.

    write = property(lambda self: self)

    def mode(self, _: str) -> FakeSpark:
        return self

    format = mode

    def options(self, **given: str) -> FakeSpark:
        if "progress" in given:
            self.progress = Path(given["progress"])
        return self

    def save(self) -> None:
        write_progress(self.progress, 0, TaskProgress(1000, 300))
        raise self._error


@pytest.mark.parametrize("before", [0, 500])
@pytest.mark.parametrize(
    ("error", "caught", "text"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, "interrupted"),
        (Py4JNetworkError("Error while receiving"), ReplayFailed, "Spark's JVM was killed, or ran "
         "out of memory"),
    ],
)  # fmt: skip
def test_a_replay_that_is_broken_off_tells_what_it_has_sent(
    error: BaseException, caught: type[BaseException], text: str, before: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Found: of a JVM that was killed, a stack and no report; and of a second loop nothing."""

    def replay(spark: Any, *_: Any, **__: Any) -> None:
        _write(spark, {}, Report(Counts(sent=before)), None)

    monkeypatch.setattr("spark.sessions.session", lambda *_, **__: FakeSpark(error))
    monkeypatch.setattr("spark.replay.replay.replay", replay)
    plan = ReplayPlan(directory="data", to=read_destination(">"))
    with pytest.raises(caught):
        _run(Namespace(master="local[1]", json=True, dry_run=False), plan, {}, frozenset())
    told = json.loads(capsys.readouterr().out)
    assert told["error"] == f"{text}; at least {before + 300} messages had been handed over"
    assert not told["complete"]


def test_a_spark_that_does_not_start_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: a stack trace, of `--master` with a mistake in it."""

    def start(*_: Any, **__: Any) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("spark.sessions.session", start)
    plan = ReplayPlan(directory="data", to=read_destination("broker2"))
    with pytest.raises(CaptureError, match="Java gateway process exited") as caught:
        _run(Namespace(master="bogus", json=True), plan, {}, frozenset())
    assert "\n" not in str(caught.value)


def test_what_pyspark_has_running_here_prints_no_stack(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Found: 20 lines when the JVM was killed, of the server that collects its workers' figures."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.StreamRequestHandler) as server:
        with (tmp_path / "log").open("w") as log, quiet(log.fileno()):
            server.handle_error(None, ("127.0.0.1", 1))  # type: ignore[arg-type]
        assert capfd.readouterr().err == ""
        server.handle_error(None, ("127.0.0.1", 1))  # type: ignore[arg-type]
        assert "Exception occurred" in capfd.readouterr().err


class Started(Exception):
    """In place of a JVM."""


@pytest.mark.parametrize(
    ("terminal", "as_json", "said"),
    [
        (True, False, "mesh: starting Spark, which may take a minute\n"),
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
        _run(Namespace(master="local[1]", json=as_json), plan, {}, frozenset())
    assert capsys.readouterr().err == said


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A replay of queue `jobs` and stream `audit` to a broker that has only the one; it ends where Spark starts."""

    def start(*_: Any, **__: Any) -> None:
        raise Started

    jobs_and_audit(tmp_path).close()
    monkeypatch.setattr("spark.sessions.session", start)
    monkeypatch.setattr("spark.commands.replay.check_spark", lambda: None)
    monkeypatch.setattr("spark.replay.preflight.destination_names", lambda _: frozenset({"jobs"}))
    return ["replay", str(tmp_path), "--to", "broker2"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--queue", "jobs", "--stream", "audit"], "'broker2' has no queue or stream 'audit': "),
        (["--stream", "audit"], "allow cluster 'spark' to publish to them"),
        (
            ["--stream", "audit", "--cluster", "x"],
            "`mesh-broker set-permission x --write amq.default`",
        ),
        (["--queue", "jbos"], "no queue 'jbos' has messages in this log: did you mean 'jobs'?"),
        (["--stream", "jobs"], "no stream 'jobs' has messages in this log"),
        (["--vhost", "elsewhere"], "no vhost 'elsewhere'"),
    ],
)
def test_what_is_not_there_is_told_before_spark_starts(
    begun: list[str], more: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: a minute later; and nothing of what the broker tells only to those who may publish there."""
    assert main([*begun, *more]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_what_is_encrypted_is_looked_at_with_the_keys_of_whoever_sends(tmp_path: Path) -> None:
    captured = Captured(tmp_path / "data", encryption=encryption())
    captured.declare("jobs", 1)
    captured.close()
    directory, to = str(captured.data), read_destination("broker2")
    plan = ReplayPlan(directory=directory, to=to, queues=("jobs",))
    with pytest.raises(StoreKeyMissing):
        check_exists(plan, {})
    key = secret_file(tmp_path / "secret", format_network_secret(NEW_SECRET))
    check_exists(plan, {"mesh.network_secret_file": key, "cluster": "shop"})


@pytest.mark.parametrize("more", [[], ["--queue", "jobs"]])
def test_with_all_in_place_spark_starts(begun: list[str], more: list[str]) -> None:
    with pytest.raises(Started):
        main([*begun, *more])


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("first_us", 1_763_800_000_000_001, "2025-11-22 08:26:40.000001 UTC"),
        ("last_us", 0, "-"),
        ("topics", {"test.b": 12_000, "test.a": 1}, "test.b 12,000, test.a 1"),
        ("queues", ["jobs", "urgent"], "jobs, urgent"),
        ("sent", 1_234_567, "1,234,567"),
        ("late_ms_p99", 0.25, "0.25"),
        ("complete", True, "True"),
    ],
)
def test_the_report_as_people_read_it(name: str, value: Any, text: str) -> None:
    assert _formatted(name, value) == text


def test_the_survey_finds_what_is_no_topic_as_the_mesh_does() -> None:
    def is_one(topic: str) -> bool:
        try:
            return bool(check_topic(topic))
        except InvalidName:
            return False

    topics = ["", ".", "a.", ".a", "a..b", "a.b", *(f"a{chr(code)}b" for code in range(0x3100))]
    for topic in topics:
        assert is_one(topic) == (re.search(INVALID_TOPIC, topic) is None), repr(topic)
