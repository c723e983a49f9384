"""Where stdout takes nothing, each program says so in one line, whatever it was to print and however."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell import Shell
from tests.stores import declared, make_store, message

PROGRAMS = {"mesh": "mesh.cli", "mesh-broker": "durable.cli", "mesh-bench": "bench.cli"}
FULL = [
    ("mesh --help", ""), ("mesh members --help", "1"), ("mesh keys show", ""), ("mesh keys show", "1"),
    ("mesh members --wait 0.5", ""), ("mesh-broker --version", "1"), ("mesh-broker inspect data", ""),
    ("mesh-broker inspect data --queue jobs --cat", "1"), ("mesh-bench --help", ""),
    ("mesh-bench setup", "1"),
]  # fmt: skip
"""And PYTHONUNBUFFERED: with it the first piece fails, else all of it at the end."""
GONE = [("mesh --help", "1"), ("mesh-broker inspect data", ""), ("mesh-bench --help", "")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A member of a cluster to be listed, and a directory to be looked into."""
    shell = Shell(tmp_path_factory.mktemp("stdout"))
    make_store(shell.directory / "data", [declared(), message(1)])
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed):
        yield shell


def run(shell: Shell, line: str, stdout: int, unbuffered: str) -> tuple[int, list[bytes]]:
    program, *words = line.split()
    done = subprocess.run(
        [sys.executable, "-m", PROGRAMS[program], *words], stdout=stdout, stderr=subprocess.PIPE,
        env={**shell.environment, "PYTHONUNBUFFERED": unbuffered}, cwd=shell.directory,
        timeout=40, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("line", "unbuffered"), FULL)
def test_what_cannot_be_written_is_one_line_and_a_status(
    shell: Shell, line: str, unbuffered: str
) -> None:
    """Found: help that ended with 0, and what failed elsewhere without a name of what was full; before
    that, Python wrote it after us, said so in lines of its own, and ended with 120."""
    with Path("/dev/full").open("wb") as full:
        status, said = run(shell, line, full.fileno(), unbuffered)
    program = line.split()[0].encode()
    assert (status, said) == (1, [program + b": stdout: No space left on device"])


@pytest.mark.slow
@pytest.mark.parametrize(("line", "unbuffered"), GONE)
def test_whoever_read_has_enough(shell: Shell, line: str, unbuffered: str) -> None:
    gone, stdout = os.pipe()
    os.close(gone)
    try:
        assert run(shell, line, stdout, unbuffered) == (0, [])
    finally:
        os.close(stdout)
