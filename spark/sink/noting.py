"""How far tasks are, in a directory: a file for each partition, for whoever shows it meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DIGITS = 20


def note(directory: Path, partition: int, done: int) -> None:
    """Called while messages are due, so the number before is overwritten in place: a file that is
    emptied and written anew ext4 flushes when it is closed, which took 5 to 15 ms."""
    file = os.open(directory / str(partition), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, b"%*d" % (DIGITS, done))
    finally:
        os.close(file)


def noted(directory: Path) -> int:
    """By all tasks on this machine."""
    total = 0
    for path in directory.iterdir():
        with suppress(ValueError):  # It has just been made.
            total += int(path.read_text())
    return total
