"""`mesh-bench`, also `python -m bench`: systems beside each other, and the project's own marks.

Progress on stderr, tables on stdout. Ctrl-C and SIGTERM end every child and keep what was measured.
Exit status: 0 measured, whether or not the marks hold; 1 something could not be measured;
2 wrong usage; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from mesh.entry import terminable

from . import compare, marks, page, scale, setup
from .usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (compare, scale, page, setup, marks)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mesh-bench",
        description="Measure message systems beside each other, or the mesh against its marks.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        with terminable():
            status: int = args.run(args)
    except UsageError as error:
        print(f"mesh-bench: {error}", file=sys.stderr)
        return 2
    return status
