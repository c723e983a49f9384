"""The console entry of `mesh`."""

from __future__ import annotations

import sys

from .loading import silence_interrupts


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    silence_interrupts()
    from .entry import run_console  # Loads for longer, so Ctrl-C is handled first.

    return run_console("mesh.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
