"""What the commands share: numbers from words, and how a run of rounds goes."""

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
    """What was asked for makes no sense; its text is one line."""


def positive(text: str) -> int:
    """Also `1e6`, and `10_000`."""
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
    """On stdout, where whoever reads may have had enough."""
    try:
        print(words, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def made(directory: Path, option: str) -> Path:
    """Raises UsageError: nothing can be written there, which nobody wants to hear at the end."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"{option} {directory}: {error.strerror}") from None
    return directory


def needs(module: str) -> None:
    """Raises UsageError: it is not installed, as it need not be for the other commands."""
    try:
        import_module(module)
    except ModuleNotFoundError:
        raise UsageError(f"no Python module {module}: pip install -e .[bench]") from None


def surroundings(notes: Sequence[str]) -> dict[str, Any]:
    """What it is measured on, told before it begins."""
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
    """The figures, what could not be measured, and the exit status."""
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
    """The file where one is wanted, with `more` in it; then the table. Ctrl-C is heard after that."""
    # Each run starts processes anew: what is committed or changed meanwhile was measured, too.
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
