"""`mesh-broker`: the console entry."""

from __future__ import annotations

import sys

from mesh.loading import silence_interrupts


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    silence_interrupts()
    from mesh.entry import run_console  # Loads longer, so it comes after `silence_interrupts`.

    return run_console("durable.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
