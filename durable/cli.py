"""`mesh-broker`: the console entry."""

from __future__ import annotations

import sys

from mesh.loading import ends_silently


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; see `commands.console`."""
    ends_silently()
    from mesh.entry import enter  # Loads longer, so it comes after `ends_silently`.

    return enter("durable.commands.console", argv)


if __name__ == "__main__":
    sys.exit(main())
