"""How a console entry begins: it imports nothing heavy, so that Ctrl-C has one answer from the start.

Loading trio and zmq takes a third of a second; interrupted there, Python would print a stack trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def enter(console: str, argv: Sequence[str] | None = None) -> int:
    """Load this module, run its `run(argv)`, and return the exit status."""
    try:
        status: int = import_module(console).run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status
