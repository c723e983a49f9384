"""How signals end a command: what it holds is given back, and the status says which signal it was."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import trio

from mesh.entry import INTERRUPTED, TERMINATED, Terminated, enter, interrupted_status, terminable


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
    def run(argv: Any) -> int:
        with terminable():
            signal.raise_signal(number)
        raise AssertionError("it went on")

    monkeypatch.setitem(sys.modules, "a_console", SimpleNamespace(run=run))
    assert enter("a_console") == status


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
