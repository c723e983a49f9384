"""How a console entry begins: it imports nothing heavy, so that Ctrl-C has one answer from the start.

Loading trio and zmq takes a third of a second; interrupted there, Python would print a stack trace.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


STANDARD = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""Opened the wrong way round, so that using them fails as using what is closed does; but words go nowhere."""


def stand_in() -> None:
    """For what the caller has closed, as `>&-` does: Python has None there, and the next file that is
    opened would be in its place. Who uses it gets an OSError, at once: nothing waits to be written."""
    for name, flags in STANDARD:
        if getattr(sys, name) is None:
            mode = "rb" if name == "stdin" else "wb"
            raw = open(os.open(os.devnull, flags), mode, buffering=0)  # noqa: SIM115
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))


def enter(console: str, argv: Sequence[str] | None = None) -> int:
    """Load this module, run its `run(argv)`, and return the exit status."""
    stand_in()
    try:
        status: int = import_module(console).run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status
