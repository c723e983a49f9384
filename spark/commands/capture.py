"""`mesh capture stats|cat|export`: shows what a broker has stored, without writing code, and without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from mesh.commands.options import Commands, count, path

from ..installed import check_reading
from .reading import add_selection, wrong_usage

DESCRIPTION = "Read a broker's directory, while the broker runs or not. Nothing in it is changed."


def add(commands: Commands) -> None:
    top = commands.add_parser(
        "capture", help="look at what a broker has stored (needs pyarrow)", description=DESCRIPTION
    )
    family = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    stats = family.add_parser("stats", help="messages, bytes, rates and latency per topic")
    stats.add_argument("--json", action="store_true", help="one JSON object per line")
    cat = family.add_parser("cat", help="messages, one per line")
    how = cat.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object per message")
    how.add_argument("--payload", action="store_true", help="payloads only, as they are")
    cat.add_argument("--limit", type=count, metavar="N", help="at most so many")
    export = family.add_parser("export", help="to Parquet files, by date and topic")
    for command, module in ((stats, "stats"), (cat, "cat"), (export, "export")):
        add_selection(command)
        command.set_defaults(run=_later(module))
    export.add_argument("out", type=path, metavar="OUT", help="a directory that is not there yet")


def _later(module: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that loads the command's module only when it runs: `mesh --help` does without pyarrow."""

    def run(args: argparse.Namespace) -> int:
        check_reading()
        with wrong_usage():
            status: int = import_module(f"..{module}", __name__).run(args)
        return status

    return run
