"""`mesh-broker`: the console entry. It imports nothing heavy, so that Ctrl-C has one answer from the start."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    try:
        from .commands.console import run

        return run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
