"""`mesh-bench`, also `python -m bench`: comparisons of systems, and the project's own marks.

Progress goes to stderr, tables to stdout. Ctrl-C and SIGTERM end every child and keep what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mesh.commands.program import Parser, make_parser, run_program

from . import compare, marks, page, scale, setup

COMMANDS = (compare, scale, page, setup, marks)
EPILOG = """\
exit status: 0 measured, whether or not the marks hold; 1 something could not be measured; 2 wrong
usage; 130 interrupted; 143 terminated."""


def parser() -> Parser:
    top = make_parser(
        "mesh-bench",
        "Measure message systems beside each other, or the mesh against its marks.",
        EPILOG,
    )
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    for module in COMMANDS:
        module.add(commands)
    return top


def load(argv: Sequence[str]) -> Callable[[], int]:
    """Return a function that runs the command and returns its exit status."""
    return partial(run_program, parser(), argv)
