"""`mesh-bench`, also `python -m bench`: the console entry."""

from __future__ import annotations

import sys

from mesh.loading import ends_silently


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    ends_silently()
    from mesh.entry import enter  # Imported after `ends_silently`, as this import takes longer.

    return enter("bench.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
