"""Real role processes: they answer, they are counted, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import processes
from bench.plan import Scale
from bench.processes import MeasurementFailed, Role, Troupe
from bench.raw import publish_subscribe, push_pull, request_reply
from bench.roles.stage import leave_on_sigterm
from bench.stream import knock_until_ready, run_phase
from bench.usage import of_group

TINY = 2000


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_roles_answer_and_report_what_they_used() -> None:
    with Troupe() as troupe:
        role = troupe.start("raw_reply", {"window": 1})
        assert role.ready["endpoint"].startswith("tcp://127.0.0.1:")
        (usage,) = troupe.usage().values()
        assert usage.cpu_s > 0
        assert 0 < usage.rss_bytes <= usage.peak_rss_bytes
        pid = role.pid
        assert is_alive(pid)
    assert not is_alive(pid)


def test_an_error_in_the_block_ends_the_roles_too() -> None:
    started: list[Role] = []
    with pytest.raises(KeyboardInterrupt), Troupe() as troupe:
        started.append(troupe.start("raw_reply", {"window": 1}))
        raise KeyboardInterrupt
    assert not is_alive(started[0].pid)


def test_ctrl_c_while_a_role_begins_ends_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    popen, pids = subprocess.Popen, list[int]()

    def interrupted(*words: Any, **options: Any) -> Any:
        process = popen(*words, **options)
        pids.append(process.pid)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt), Troupe() as troupe:
        troupe.start("raw_reply", {"window": 1})
    assert len(pids) == 1
    assert not is_alive(pids[0])


@pytest.fixture
def first_end_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes the first time that a role is ended."""
    end, impatient = Role.end, [KeyboardInterrupt()]

    def interrupted(role: Role, patience_s: float) -> None:
        if impatient:
            raise impatient.pop()
        end(role, patience_s)

    monkeypatch.setattr(Role, "end", interrupted)


@pytest.mark.usefixtures("first_end_interrupted")
def test_ctrl_c_while_a_role_is_told_to_leave_ends_it_all_the_same() -> None:
    started: list[Role] = []
    with pytest.raises(KeyboardInterrupt), Troupe() as troupe:
        started.append(troupe.start("raw_reply", {"window": 1}))
        troupe.end_all()
    assert not is_alive(started[0].pid)


@pytest.mark.usefixtures("first_end_interrupted")
def test_ctrl_c_while_the_roles_leave_ends_them_all_the_same() -> None:
    started: list[Role] = []
    with pytest.raises(KeyboardInterrupt), Troupe() as troupe:
        started += [troupe.start("raw_reply", {"window": 1}) for _ in range(2)]
    assert not any(is_alive(role.pid) for role in started)


def test_a_role_that_holds_directories_leaves_by_sigterm_as_it_should() -> None:
    """Found: Ctrl-C while Spark was measured left its home behind."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        leave_on_sigterm()
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("tidy", [True, False])
def test_what_a_role_started_does_not_outlive_it(
    tidy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found: Spark's Java, which tidies up once it is alone, lived longer than the bench after Ctrl-C."""
    left, script = tmp_path / "left", tmp_path / "role"
    tidying = f"(while kill -0 $$; do sleep 0.01; done; touch {left}) 2>/dev/null"
    script.write_text(
        f"""#!/bin/sh
        {tidying if tidy else "sleep 1000"} &
        echo "{{\\"say\\": \\"ready\\"}}"
        wait
        """
    )
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    if not tidy:
        monkeypatch.setattr(processes, "LEAVE_S_MAX", 0.1)
    with Troupe() as troupe:
        role = troupe.start("raw_reply", {})
        role.end(0)
        assert left.exists() == tidy
        assert not of_group(role.pid)


def test_a_role_that_fails_says_why() -> None:
    with (
        pytest.raises(MeasurementFailed, match=r"raw_push: KeyError: 'size_bytes'"),
        Troupe() as troupe,
    ):
        troupe.start("raw_push", {})


def test_a_role_that_cannot_start_shows_its_stderr() -> None:
    with pytest.raises(MeasurementFailed, match="died") as caught, Troupe() as troupe:
        troupe.start("no_such_role", {})
    assert "No module named" in "".join(caught.value.__notes__)


def test_a_role_that_was_summoned_and_is_not_needed_leaves_without_a_word() -> None:
    with Troupe() as troupe:
        role = troupe.summon("raw_reply")
        role.dismiss()
        with pytest.raises(MeasurementFailed, match="died"):
            role.hear()
        assert role.last_words() == ""


def test_a_role_that_is_killed_is_a_failed_measurement() -> None:
    with Troupe() as troupe:
        role = troupe.start("raw_reply", {"window": 1})
        os.kill(role.pid, 9)
        with pytest.raises(MeasurementFailed, match="died"):
            role.hear()


def test_a_receiver_that_dies_is_told_though_its_sender_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: after the three minutes that an answer may take, as the sender's silence."""
    ring = {"size_bytes": 100_000, "ring_count": 10}
    with Troupe() as troupe:
        pull = troupe.start("raw_pull", ring)
        push = troupe.start("raw_push", {**ring, "endpoint": pull.ready["endpoint"]})
        tell = pull.tell

        def told_and_killed(do: str, **facts: Any) -> None:
            tell(do, **facts)
            os.kill(pull.pid, signal.SIGKILL)

        monkeypatch.setattr(pull, "tell", told_and_killed)
        with pytest.raises(MeasurementFailed, match="raw_pull: died"):
            run_phase(push, [pull], start=0, count=10**6, answer_s_max=20)


def test_a_reader_that_dies_is_told_before_it_has_heard_of_the_publisher() -> None:
    """Found: as the publisher's silence, or as a reader's that waits for no message any more."""
    with Troupe() as troupe:
        publisher, reader = (troupe.start("raw_reply", {"window": 1}) for _ in range(2))
        os.kill(publisher.pid, signal.SIGSTOP)
        os.kill(reader.pid, signal.SIGKILL)
        with pytest.raises(MeasurementFailed, match="died"):
            knock_until_ready(publisher, [reader])


def test_what_others_say_meanwhile_is_kept_for_who_hears_them() -> None:
    with Troupe() as troupe:
        early, late = (troupe.start("raw_reply", {"window": 1}) for _ in range(2))
        early.tell("usage")
        with pytest.raises(MeasurementFailed, match="no answer"):
            late.hear(0.5, beside=[early])
        late.tell("usage")
        assert late.hear(beside=[early])["cpu_s"] > 0
        assert early.hear()["cpu_s"] > 0


def test_a_role_that_has_failed_stays_failed_whoever_asks() -> None:
    """Found: asked again, it gave why it had failed as an answer."""
    with Troupe() as troupe:
        fails, other = (troupe.start("raw_reply", {"window": 1}) for _ in range(2))
        fails.tell("nonsense")
        with pytest.raises(MeasurementFailed, match="raw_reply: KeyError"):
            other.hear(beside=[fails])
        for _ in range(2):
            with pytest.raises(MeasurementFailed, match="raw_reply: KeyError"):
                fails.hear()


def test_a_silent_role_is_a_failed_measurement() -> None:
    with Troupe() as troupe:
        role = troupe.start("raw_reply", {"window": 1})
        assert role.poll(0) is None
        with pytest.raises(MeasurementFailed, match="no answer"):
            role.hear(timeout_s=0)


@pytest.mark.parametrize(
    "case",
    [
        push_pull("plain", 100, TINY),
        push_pull("curve", 100, TINY, curve=True),
        publish_subscribe("fan", 100, TINY, processes=2, subscribers=2),
        publish_subscribe("topics", 100, TINY, processes=1, subscribers=1, topics=10),
        request_reply("one", 100, TINY, window=1),
        request_reply("many", 100, TINY, window=16),
    ],
    ids=lambda case: case.name,
)
def test_raw_references_lose_nothing(case) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with Troupe() as troupe:
        outcome = case.run(troupe, Scale())
    assert outcome.wrong == 0
    assert all(value > 0 for value in outcome.values.values())
