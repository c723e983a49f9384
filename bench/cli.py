"""`mesh-bench`, also `python -m bench`: the console entry."""

from __future__ import annotations

import sys

from mesh.loading import ends_silently


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    ends_silently()
    from mesh.entry import enter  # What loads for longer comes after it.

    return enter("bench.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
