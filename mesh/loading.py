"""Makes Ctrl-C end a program at once and silently while it loads, when there is nothing to clean up yet.

Until this handler is set Python prints a stack trace, so as little as possible is imported before.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""Exit status: 128 plus the number of SIGINT, as in shells."""


def silence_interrupts() -> None:
    """End silently on Ctrl-C from now on, unless SIGINT is ignored, as for commands that a script starts with `&`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def restore_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    # Not SystemExit: an exception raised in a callback, as the import system has them, is printed and lost.
    os._exit(INTERRUPTED)
