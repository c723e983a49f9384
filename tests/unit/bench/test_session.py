"""Rounds, their order, what is kept of failures and of Ctrl-C, and what the user is told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bench import cli, machine
from bench.commands import marks
from bench.figure import Bound
from bench.plan import Case, Family, Outcome, Row, Scale, pick
from bench.processes import MeasurementFailed, Troupe
from bench.session import Session
from bench.table import render

if TYPE_CHECKING:
    from pathlib import Path


class Script:
    """Stands in for measuring: answers the next of its outcomes, or raises it."""

    def __init__(self, *outcomes: Outcome | BaseException) -> None:
        self._outcomes = list(outcomes)

    def __call__(self, troupe: Troupe, scale: Scale) -> Outcome:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def rate(per_s: float, wrong: int = 0) -> Outcome:
    return Outcome({"per_s": per_s}, wrong=wrong)


def family(mesh: Script, raw: Script) -> Family:
    row = Row(
        name="publish",
        unit="msg/s",
        case="mesh",
        value="per_s",
        reference=("raw", "per_s"),
        bounds=(Bound("ratio", "at least", 2.0),),
    )
    return Family(name="topics", cases=[Case("mesh", mesh), Case("raw", raw)], rows=[row])


def session(entry: Family, rounds: int, said: list[str] | None = None) -> Session:
    say = (said if said is not None else []).append
    return Session([entry], rounds=rounds, scale=Scale(), say=say)


def test_each_round_runs_every_case_and_pairs_it_with_its_own_reference() -> None:
    said: list[str] = []
    run = session(family(Script(rate(6), rate(9)), Script(rate(2), rate(3))), 2, said)
    run.run()
    (figure,) = run.figures()
    assert [entry["ratio"] for entry in figure.runs] == [3.0, 3.0]
    assert (figure.value, figure.reference, figure.holds) == (7.5, 2.5, True)
    assert len(said) == 4


def test_rounds_differ_in_order_and_repeat_for_the_same_number() -> None:
    orders = []
    for _ in range(2):
        said: list[str] = []
        entry = family(Script(*[rate(1)] * 20), Script(*[rate(1)] * 20))
        session(entry, 20, said).run()
        orders.append([line.split("  ")[1].split(":")[0] for line in said])
    assert orders[0] == orders[1]
    assert {tuple(orders[0][i : i + 2]) for i in range(0, 40, 2)} == {
        ("mesh", "raw"),
        ("raw", "mesh"),
    }


def test_several_rounds_are_printed_with_the_least_and_the_most_and_one_without() -> None:
    run = session(family(Script(rate(6), rate(9)), Script(rate(2), rate(3.6))), 2)
    run.run()
    words = " ".join(render(run.figures()).split())
    assert "| 7.5 msg/s (6 to 9) | 2.8 | 2.75 (2.50 to 3.00) |" in words
    run = session(family(Script(rate(6)), Script(rate(2))), 1)
    run.run()
    assert " 6 msg/s " in render(run.figures())
    assert render(run.figures()).count(" to ") == 2  # In the headings.


def test_a_loss_prints_no_rate() -> None:
    said: list[str] = []
    run = session(family(Script(rate(6, wrong=4)), Script(rate(2))), 1, said)
    run.run()
    assert sorted(line.partition(" (")[0] for line in said) == [
        "round 1/1  mesh: LOST OR WRONG 4", "round 1/1  raw: per_s 2",
    ]  # fmt: skip
    (figure,) = run.figures()
    assert (figure.value, figure.wrong, figure.holds) == (None, 4, False)
    assert "LOST OR WRONG 4" in render([figure])


def test_a_load_that_was_not_what_was_asked_for_is_told_wherever_its_values_are() -> None:
    """Found: on the page only."""
    said: list[str] = []
    late = [Outcome({"per_s": value}, caveat="SCHEDULE NOT KEPT") for value in (6.0, 8.0)]
    run = session(family(Script(*late), Script(rate(2), rate(2))), 2, said)
    run.run()
    assert "| 7 msg/s (6 to 8), SCHEDULE NOT KEPT " in render(run.figures())
    assert any("mesh: per_s 6, SCHEDULE NOT KEPT (" in line for line in said)
    assert [entry["caveat"] for entry in run.figures()[0].runs] == ["SCHEDULE NOT KEPT"] * 2


def test_a_quantile_that_has_too_few_samples_was_measured_all_the_same() -> None:
    run = session(family(Script(Outcome({"p50_us": 1.0})), Script(rate(2))), 1)
    run.run()
    assert "| too few samples " in render(run.figures())


def test_a_reference_that_lost_messages_is_no_reference() -> None:
    run = session(family(Script(rate(6)), Script(rate(2, wrong=1))), 1)
    run.run()
    (figure,) = run.figures()
    assert (figure.value, figure.reference, figure.ratio) == (6.0, None, None)


@pytest.mark.parametrize("error", [MeasurementFailed("no room"), OSError("no room")])
def test_a_failed_run_is_told_and_the_rest_goes_on(error: Exception) -> None:
    """Found: a disk that was full ended the bench by a stack trace, with nothing written."""
    run = session(family(Script(error, rate(9)), Script(rate(2), rate(3))), 2)
    run.run()
    (figure,) = run.figures()
    assert run.failures == ["mesh, round 1: no room"]
    assert [entry["value"] for entry in figure.runs] == [9]
    assert (figure.value, figure.failed) == (9, 1)
    assert "| 9 msg/s, FAILED rounds 1 " in render([figure])
    assert figure.holds is False  # It would, by what is left.


def test_a_fault_of_the_bench_costs_its_own_run_and_says_where_it_is() -> None:
    """Found: all that had been measured was lost by it."""
    said: list[str] = []
    run = session(family(Script(KeyError("size"), rate(9)), Script(rate(2), rate(3))), 2, said)
    run.run()
    (figure,) = run.figures()
    assert run.failures == ["mesh, round 1: KeyError: 'size'"]
    assert (figure.value, figure.failed) == (9, 1)
    (told,) = [one for one in said if "FAILED" in one]
    assert "in __call__" in told


def test_a_family_may_want_fewer_rounds() -> None:
    entry = family(Script(rate(1)), Script(rate(1)))
    run = session(Family(name="x", cases=entry.cases, rows=entry.rows, rounds_max=1), 3)
    run.run()
    assert len(run.figures()[0].runs) == 1


def test_pick_by_family_by_row_and_with_the_cases_these_need() -> None:
    entry = family(Script(), Script())
    other = Family(
        name="idle",
        cases=[Case("node", Script()), Case("links", Script())],
        rows=[
            Row(name="idle CPU", unit="%", case="node", value="cpu"),
            Row(name="links", unit="MB", case="links", value="mb"),
        ],
    )
    assert pick([entry, other], []) == [entry, other]
    assert [row.name for row in pick([entry, other], ["idle"])[0].rows] == ["idle CPU", "links"]
    assert [picked.name for picked in pick([entry, other], ["topics"])] == ["topics"]
    (picked,) = pick([entry, other], ["CPU"])
    assert [case.name for case in picked.cases] == ["node"]
    (picked,) = pick([entry, other], ["publish"])
    assert [case.name for case in picked.cases] == ["mesh", "raw"]
    with pytest.raises(ValueError, match="nothing"):
        pick([entry], ["nothing"])


class Module:
    """Stands in for a workload's module."""

    def __init__(self, entry: Family) -> None:
        self._entry = entry

    def family(self) -> list[Family]:
        return [self._entry]


def run_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mesh: Script, raw: Script
) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(marks, "BENCHES", {"mesh": (Module(family(mesh, raw)),)})
    out = tmp_path / "out.json"
    status = cli.main(["mesh", "--rounds", "2", "--json", str(out)])
    return status, json.loads(out.read_text())


def test_a_missed_mark_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh, raw = Script(rate(1), rate(1)), Script(rate(1), rate(1))
    status, content = run_command(monkeypatch, tmp_path, mesh, raw)
    assert status == 0
    assert set(content) == {"machine", "commit", "figures"}
    assert content["figures"][0]["holds"] is False
    assert "NO" in capsys.readouterr().out


def test_a_failed_measurement_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = Script(MeasurementFailed("died"), MeasurementFailed("died"))
    status, content = run_command(monkeypatch, tmp_path, mesh, Script(rate(1), rate(1)))
    assert status == 1
    assert content["figures"][0]["value"] is None
    captured = capsys.readouterr()
    assert "not measured" in captured.out
    assert "mesh, round 1: died" in captured.err


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mesh, raw = Script(rate(6), KeyboardInterrupt()), Script(rate(2), KeyboardInterrupt())
    status, content = run_command(monkeypatch, tmp_path, mesh, raw)
    assert status == 130
    assert content["machine"]["failures"] == ["what would have come after the interrupt"]
    assert content["figures"][0]["value"] == 6
    assert content["figures"][0]["ratio"] == 3


@pytest.mark.parametrize(
    ("heads", "changes", "dirty"),
    [("aa", (False, False), False), ("ab", (False, False), True), ("aa", (False, True), True)],
)
def test_the_commit_is_that_of_the_beginning_and_what_came_meanwhile_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    heads: str,
    changes: tuple[bool, ...],
    dirty: bool,
) -> None:
    """Found: who committed while it was measured had all figures told as those of that commit."""
    monkeypatch.setattr(machine, "commit", iter(heads).__next__)
    monkeypatch.setattr(machine, "is_dirty", iter(changes).__next__)
    mesh, raw = Script(rate(6), rate(6)), Script(rate(2), rate(2))
    _, content = run_command(monkeypatch, tmp_path, mesh, raw)
    assert (content["commit"], content["machine"]["dirty"]) == ("a", dirty)


def test_a_page_written_meanwhile_leaves_the_commit_that_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found: make bench-marks after make bench told that files differed from the commit: the page did."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    names = [tmp_path / "docs" / "performance.md", tmp_path / "code.py"]
    names[0].parent.mkdir()
    for name in names:
        name.write_text("before\n")
    someone = ("-c", "user.name=n", "-c", "user.email=e@localhost")
    for words in (("init", "--quiet"), ("add", "."), (*someone, "commit", "--quiet", "-m", "m")):
        machine.git(*words)
    assert not machine.is_dirty()
    told = []
    for name in names:
        name.write_text("after\n")
        told.append(machine.is_dirty())
    assert told == [False, True]


def test_whoever_stops_reading_the_table_costs_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found: `mesh-bench ... | head` lost all that was measured."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        mesh, raw = Script(rate(6), rate(6)), Script(rate(2), rate(2))
        status, content = run_command(monkeypatch, tmp_path, mesh, raw)
    assert (status, content["figures"][0]["value"]) == (0, 6)


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mesh", "--only", "no such figure"]) == 2
    assert "no such figure" in capsys.readouterr().err


ROWS_OF_THE_ISSUE = [
    "publish-subscribe 1->1 100 B, publish, batch iterator",
    "publish-subscribe 1->1 100 B, publish, message iterator",
    "publish-subscribe 1->1 1 KB, publish, batch iterator",
    "publish-subscribe 1->1 1 KB, publish, message iterator",
    "publish-subscribe 1->8 subscriptions in 2 processes 100 B",
    "publish-subscribe 1,000 topics in turn 100 B",
    "request-reply one at a time 256 B, p50",
    "request-reply one at a time 256 B, p99",
    "request-reply 256 outstanding, beside one at a time",
    "tunnel 1 GB in 64 KB parts",
    "p99 with one of four members 4x slower, beside random choice",
    "published messages lost over 20 TCP resets under load",
    "idle node, CPU",
    "idle node, RSS",
    "200 links, more RSS",
]


def test_every_row_of_the_table_is_a_figure_of_a_case_that_exists() -> None:
    families = [entry for module in marks.BENCHES["mesh"] for entry in module.family()]
    names = [row.name for entry in families for row in entry.rows]
    assert len(names) == len(set(names))
    assert set(ROWS_OF_THE_ISSUE) <= set(names)
    for entry in families:
        cases = [case.name for case in entry.cases]
        assert len(cases) == len(set(cases))
        needed = {row.case for row in entry.rows}
        needed |= {row.reference[0] for row in entry.rows if row.reference}
        assert needed == set(cases)
