"""Ctrl-C while a program loads ends it at once and silently: there is nothing to clean up yet.

Until the handler is set Python prints a stack trace, so as little as possible is imported before.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def ends_silently() -> None:
    """From now on, unless SIGINT is ignored, as in what a script starts with `&`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loaded() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    # Not SystemExit: what is raised in a callback, as the import system has them, is printed and lost.
    os._exit(INTERRUPTED)
