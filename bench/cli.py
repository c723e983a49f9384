"""`mesh-bench`, also `python -m bench`: the console entry."""

from __future__ import annotations

import sys

from mesh.loading import silence_interrupts


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    silence_interrupts()
    from mesh.entry import (
        run_console,  # Imported after `silence_interrupts`, as this import takes longer.
    )

    return run_console("bench.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
