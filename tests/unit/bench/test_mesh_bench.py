"""`mesh-bench`: its commands, their errors in a line, and small runs on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import cli
from bench.commands import compare
from bench.comparison import histograms
from bench.figure import Figure
from bench.machine import ROOT
from bench.systems import PACKAGES, SYSTEMS
from tests.waiting import until_in_thread


def test_setup_names_every_system_and_one_line_that_installs_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["setup"]) == 0
    out = capsys.readouterr().out
    for name in SYSTEMS:
        assert f"\n{name} " in f"\n{out}"
    assert f"apt-get install {' '.join(PACKAGES)} && pip install" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["compare", "--systems", "zeromq,carrier-pigeon"], "carrier-pigeon"),
        (["throughput", "--systems", "mesh"], "; did you mean mesh-"),
        (["throughput", "--systems", "zenho"], "; did you mean zenoh?"),
        (["latency", "--workloads", "L9"], "no workload is called 'L9'"),
        (["throughput", "--size", "8"], "want at least 16"),
        (["latency", "--workloads", "L1,"], "no workload is called ''"),
        (["throughput", "--systems", "mesh-requests"], "mesh-requests: nothing that is measured"),
        (["latency", "--systems", "zeromq-packed"], "zeromq-packed: nothing that is measured"),
        (["scale", "--axes", "moons"], "no axis is called 'moons'"),
        (["scale", "--out", "/dev/null"], "--out /dev/null: File exists"),
        (["compare", "--systems", "zeromq", "--out", "/dev/null"], "--out /dev/null: File exists"),
        (["mesh", "--json", "/dev/null/file.json"], "--json /dev/null: File exists"),
        (["mesh", "--json", "."], "a directory"),
        (["page", "no-such-directory"], "compare.json"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mesh-bench: ")
    assert why in line


@pytest.mark.parametrize("words", [["throughput", "--count", "0"], ["latency", "--seconds", "-1"]])
def test_numbers_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2


def test_a_system_that_is_not_installed_is_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(SYSTEMS["zenoh"]), "missing", lambda _: "no Python module zenoh")
    assert cli.main(["throughput", "--systems", "zenoh"]) == 2
    assert "zenoh is skipped: no Python module zenoh" in capsys.readouterr().err


def test_ctrl_c_while_it_loads_has_the_answer_that_it_has_later() -> None:
    """Found: a stack trace, in the third of a second until the commands were loaded."""
    loaded = "import bench.cli, sys; print({'trio', 'zmq', 'bench.commands'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("words", "module"),
    [(["latency", "--systems", "zeromq"], "numpy"), (["page", "results"], "matplotlib")],
)
def test_a_module_that_is_not_there_is_told_before_anything_is_measured(
    words: list[str], module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Found: a stack trace out of the first load, with nothing written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(words) == 2
    assert capsys.readouterr().err == (
        f"mesh-bench: no Python module {module}: pip install -e .[bench]\n"
    )


@pytest.mark.slow
def test_systems_are_compared_on_real_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "compare", "--systems", "zeromq,mesh-topics", "--runs", "1", "--count", "100000",
        "--workloads", "L1", "--seconds", "2", "--quick", "--out", "results",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 0, capsys.readouterr().err
    content = json.loads((tmp_path / "results" / "compare.json").read_text())
    figures = {figure["name"]: figure for figure in content["figures"]}
    assert figures["zeromq 1024 B: received"]["value"] > 0
    assert figures["mesh-topics 1024 B: CPU of all processes"]["ratio"] > 0
    (run,) = figures["mesh-topics L1 p50"]["runs"]
    assert (run["wrong"], run["count"]) == (0, 1200)
    assert 0 < run["response"]["p50"] <= run["response"]["max"]
    for prefix in ("", "uncorrected_", "delay_"):
        assert (tmp_path / "results" / f"{prefix}zeromq-L1.hgrm").exists()
    assert not list((tmp_path / "results").glob("*.npz"))
    assert cli.main(words) == 2
    assert "results of another run" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_every_child_and_keeps_what_was_measured(tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "bench", "latency", "--systems", "zeromq", "--workloads", "L1",
        "--runs", "1000", "--quick", "--seconds", "1", "--warm", "0.5", "--out", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = iter(process.stderr)
        while not next(told).startswith("round 2/"):
            pass
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        rest = list(told)
    assert process.returncode == 130, rest
    assert not alive(children)
    content = json.loads((tmp_path / "latency.json").read_text())
    rounds = 2 + sum(line.startswith("round ") for line in rest)
    assert [
        len(figure["runs"]) for figure in content["figures"] if figure["name"].endswith("p50")
    ] == [rounds]
    assert (tmp_path / "zeromq-L1.hgrm").exists()
    assert not [line for line in rest if line.startswith("Traceback")]


@pytest.mark.parametrize("word", ["dumps", "write_histograms"])
def test_ctrl_c_while_it_is_written_waits_for_that(
    word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who is impatient presses it twice: the second one comes while the first one's results are written."""

    def measured(families: object, **settings: object) -> tuple[list[Figure], list[str], int]:
        file, found = tmp_path / "zeromq-L1-r01.npz", np.arange(9)
        np.savez(file, response=found, uncorrected=found, delay=found)
        run = {"value": 1.0, "ratio": None, "wrong": 0, "file": file.name}
        return [Figure("zeromq L1 p50", 1.0, "us", None, None, "reported", None, [run])], [], 130

    def interrupted(*words: Any, **settings: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return before(*words, **settings)

    home = json if word == "dumps" else histograms
    before = getattr(home, word)
    monkeypatch.setattr(home, word, interrupted)
    monkeypatch.setattr(compare, "run_rounds", measured)
    words = ["latency", "--systems", "zeromq", "--workloads", "L1", "--out", str(tmp_path)]
    assert cli.main(words) == 130
    files = {"latency.json", "zeromq-L1.hgrm", "uncorrected_zeromq-L1.hgrm", "delay_zeromq-L1.hgrm"}
    assert {file.name for file in tmp_path.iterdir()} == files
    assert json.loads((tmp_path / "latency.json").read_text())["figures"]


@pytest.mark.slow
def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    """With a server, whose process is nobody's child but a role's, and which writes to a directory."""
    directory, out = tmp_path / "temporary", tmp_path / "out"
    directory.mkdir()
    words = [
        sys.executable, "-m", "bench", "throughput", "--systems", "mesh-durable", "--count", "1000",
        "--runs", "1000", "--quick", "--out", str(out),
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(directory)}
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stderr is not None
        told = iter(process.stderr)
        while " per_s " not in next(told):
            pass
        servers = wait_for_grandchildren(process.pid)
        children = children_of(process.pid)
        process.terminate()
        process.terminate()
        rest = list(told)
    assert process.returncode == 143, rest
    assert not alive(children)
    wait_until_gone(servers)
    assert list(directory.iterdir()) == []
    figures = json.loads((out / "throughput.json").read_text())["figures"]
    assert {len(figure["runs"]) for figure in figures} == {1}
    assert "interrupted: what was measured until now\n" in rest
    assert not [line for line in rest if line.startswith("Traceback")]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def wait_until_gone(servers: list[int]) -> None:
    """The kernel ends those whose role had to be killed: soon after it."""
    until_in_thread(lambda: not alive(servers))


def wait_for_grandchildren(pid: int) -> list[int]:
    """Of the next run: those of the one before are gone."""
    while True:
        found = [child for role in children_of(pid) for child in children_of(role)]
        if found:
            return found


def children_of(pid: int) -> list[int]:
    """None of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in lines.split()]
