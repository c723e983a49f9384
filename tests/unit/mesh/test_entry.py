"""How signals end a command: what it holds is given back, and the status says which signal it was."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import trio

from mesh.entry import TERMINATED, Terminated, interrupted_status, run_console, terminable
from mesh.loading import INTERRUPTED, silence_interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of before, whatever a test does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) == handler
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_the_status_is_the_signals(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    def run() -> int:
        with terminable():
            signal.raise_signal(number)
        raise AssertionError("it went on")

    monkeypatch.setitem(sys.modules, "a_console", SimpleNamespace(load=lambda _: run))
    assert run_console("a_console") == status


def test_another_one_does_not_cut_the_ending_short() -> None:
    steps = []
    with pytest.raises(Terminated), terminable():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            steps.append("ended")
    assert steps == ["ended"]


def test_within_a_nursery_it_is_still_the_signals() -> None:
    async def main() -> None:
        async with trio.open_nursery():
            signal.raise_signal(signal.SIGTERM)
            await trio.lowlevel.checkpoint()

    with pytest.raises(Terminated), terminable():
        trio.run(main)


def test_whoever_ends_in_the_block_knows_which_it_was() -> None:
    def jobs_end(number: int, frame: object) -> NoReturn:
        """As Spark's handler."""
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    for handler in (signal.default_int_handler, jobs_end):
        signal.signal(signal.SIGINT, handler)
        with terminable():
            with pytest.raises(KeyboardInterrupt) as caught:
                signal.raise_signal(signal.SIGTERM)
            assert interrupted_status(caught.value) == TERMINATED
    signal.signal(signal.SIGINT, before)


class InItsOwnStep(trio.abc.Instrument):
    """SIGTERM where trio must not be interrupted: what is raised there is lost."""

    def before_io_wait(self, timeout: float) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_a_loop_is_ended_where_it_may_be(ctrl_c: Any) -> None:
    """Ctrl-C is ignored in what a script starts in the background, and stays so."""
    before = signal.signal(signal.SIGINT, ctrl_c)
    steps = []

    async def main() -> None:
        try:
            await trio.sleep_forever()
        finally:
            steps.append("ended")

    try:
        with pytest.raises(Terminated), terminable():
            if ctrl_c == signal.SIG_IGN:
                signal.raise_signal(signal.SIGINT)
            trio.run(main, instruments=[InItsOwnStep()])
        assert signal.getsignal(signal.SIGINT) == ctrl_c
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["ended"]


def test_a_loop_ends_in_its_own_way() -> None:
    steps = []

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            steps.append("ended")

    with pytest.raises(Terminated), terminable():
        trio.run(main)
    assert steps == ["ended"]


def test_it_ends_where_ctrl_c_is_ignored() -> None:
    """As of what a script starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(Terminated), terminable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


CTRL_C = """
import signal, sys

def find_spec(name, path, target=None):
    if name in {where!r}:
        signal.raise_signal(signal.SIGINT)
    found.append(name)

found = []
sys.meta_path.insert(0, type("Interrupting", (), {{"find_spec": staticmethod(find_spec)}}))
from {module} import main
print(*found)
sys.exit(main(["--version"]))
"""


def load(module: str, *where: str) -> subprocess.CompletedProcess[str]:
    """A program that Ctrl-C ends where it looks for these modules; it prints what its entry loads."""
    code = CTRL_C.format(module=module, where=where)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["mesh.cli", "durable.cli", "bench.cli"])
def test_ctrl_c_while_a_program_loads_is_silent(module: str) -> None:
    """Found: a stack trace, in the first 30 ms out of typing, later out of whatever had been loading."""
    for where in ("mesh.entry", "contextlib", "typing", "trio", "mesh.commands.program"):
        done = load(module, where)
        assert (done.returncode, done.stderr) == (INTERRUPTED, ""), where
    done = load(module)
    assert done.returncode == 0
    own = {module, module.partition(".")[0], "mesh", "mesh.lazy", "mesh.loading"}
    assert set(done.stdout.splitlines()[0].split()) <= {"__future__", "importlib", "warnings", *own}


def test_what_a_script_starts_in_the_background_keeps_ignoring_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        silence_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
