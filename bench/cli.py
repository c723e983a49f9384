"""`mesh-bench`, also `python -m bench`: the console entry."""

from __future__ import annotations

import sys

from mesh.entry import enter


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    return enter("bench.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
