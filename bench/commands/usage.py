"""Shared by the commands: parsing of numbers, checks of what is needed, and how rounds are run and reported."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import machine
from bench.figure import Figure, document
from bench.plan import Family, Scale
from bench.processes import interrupts_wait
from bench.progress import Progress
from bench.session import Session
from bench.table import render
from mesh.entry import interrupted_status
from mesh.errors import ConfigError


class UsageError(ConfigError):
    """The options make no sense or cannot be met; the text is one line."""


def positive(text: str) -> int:
    """Parse a positive integer, also written as `1e6` or `10_000`."""
    value = float(text.replace("_", ""))
    if not 1 <= value < math.inf or value != int(value):
        raise argparse.ArgumentTypeError(f"want a whole number, at least 1, got {text}")
    return int(value)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"want more than 0 seconds, got {text}")
    return value


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def show(words: str) -> None:
    """Print to stdout; a reader that has closed the pipe is no error."""
    try:
        print(words, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def made(directory: Path, option: str) -> Path:
    """Make the directory, and check before the run that it can be written to. Raises UsageError if it cannot."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"{option} {directory}: {error.strerror}") from None
    return directory


def needs(module: str) -> None:
    """Check that an optional module is installed. Raises UsageError if it is not."""
    try:
        import_module(module)
    except ModuleNotFoundError:
        raise UsageError(f"no Python module {module}: pip install -e .[bench]") from None


def surroundings(notes: Sequence[str]) -> dict[str, Any]:
    """Return the facts about machine and software, and print the main ones before the run begins."""
    facts = machine.facts()
    facts["commit"] = machine.commit()
    say(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average_before'][0]}")
    directory = facts["temporary_directory"]
    say(f"10 M turns of an empty loop: {facts['loop_10m_s']:.2f} s; files on {directory}")
    facts["notes"] = list(notes)
    for note in notes:
        say(note)
    return facts


def run_rounds(
    families: Sequence[Family], *, rounds: int, scale: Scale, profile: str | None = None
) -> tuple[list[Figure], list[str], int]:
    """Run all rounds; return the figures, what could not be measured, and the exit status."""
    progress = Progress(sys.stderr)
    session = Session(
        families,
        rounds=rounds,
        scale=scale,
        say=progress.say,
        begin=progress.begin,
        profile=profile,
    )
    status = 0
    try:
        session.run()
    except KeyboardInterrupt as interrupt:
        progress.say("interrupted: what was measured until now")
        session.failures.append("what would have come after the interrupt")
        status = interrupted_status(interrupt)
    finally:
        progress.end()
    return session.figures(), session.failures, status or (1 if session.failures else 0)


@interrupts_wait()
def report(
    facts: dict[str, Any], figures: Sequence[Figure], failures: Sequence[str], file: Path | None,
    **more: Any,
) -> None:  # fmt: skip
    """Write `file`, if given, with `more` in it, then print the table; Ctrl-C is deferred until both are done."""
    # Each run starts new processes, so commits and changes made meanwhile were measured, too.
    commit = facts.pop("commit")
    facts["dirty"] = facts["dirty"] or machine.is_dirty() or machine.commit() != commit
    facts["load_average_after"] = machine.load_average()
    facts["failures"] = list(failures)
    try:
        if file:
            content = document(facts, commit, figures) | more
            file.write_text(json.dumps(content, indent=1) + "\n")
    finally:
        show(render(figures))
    for failure in failures:
        say(f"not measured: {failure}")
