"""How far tasks are, in a directory: a file for each partition, for whoever shows it meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DIGITS = 20


class Noted(NamedTuple):
    """In messages."""

    done: int = 0
    """Sent, left out, or stored before."""
    sent: int = 0


def note(directory: Path, partition: int, so_far: Noted) -> None:
    """Called while messages are due, so the numbers before are overwritten in place: a file that is
    emptied and written anew ext4 flushes when it is closed, which took 5 to 15 ms."""
    file = os.open(directory / str(partition), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, b"%*d%*d" % (DIGITS, so_far.done, DIGITS, so_far.sent))
    finally:
        os.close(file)


def noted(directory: Path) -> Noted:
    """By all tasks on this machine."""
    done = sent = 0
    for path in directory.iterdir():
        with suppress(ValueError):  # It has just been made.
            text = path.read_text()
            one = Noted(int(text[:DIGITS]), int(text[DIGITS:]))
            done, sent = done + one.done, sent + one.sent
    return Noted(done, sent)
