"""The console entry of `mesh`."""

from __future__ import annotations

import sys

from .loading import ends_silently


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    ends_silently()
    from .entry import enter  # Loads for longer, so Ctrl-C is handled first.

    return enter("mesh.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
