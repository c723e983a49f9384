"""`mesh capture stats|cat|export`: shows what a broker has stored, without writing code, and without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from mesh.commands.options import Commands, count, path

from ..installed import check_reading
from .reading import add_selection, wrong_usage

DESCRIPTION = (
    "Read a broker's directory, whether or not the broker is running. Nothing in it is changed."
)


def add(commands: Commands) -> None:
    top = commands.add_parser(
        "capture",
        help="show or export what a broker has stored (needs pyarrow)",
        description=DESCRIPTION,
    )
    family = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    stats = family.add_parser("stats", help="print messages, bytes, rates and latency per topic")
    stats.add_argument("--json", action="store_true", help="print one JSON object per line")
    cat = family.add_parser("cat", help="print messages, one per line")
    how = cat.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON object per message")
    how.add_argument("--payload", action="store_true", help="print only the payloads, unchanged")
    cat.add_argument("--limit", type=count, metavar="N", help="print at most N messages")
    export = family.add_parser("export", help="write messages to Parquet files, by date and topic")
    for command, module in ((stats, "stats"), (cat, "cat"), (export, "export")):
        add_selection(command)
        command.set_defaults(run=_load_and_run(module))
    export.add_argument(
        "out", type=path, metavar="OUT", help="output directory; must not exist or be empty"
    )


def _load_and_run(module: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that loads the command's module only when it runs: `mesh --help` does without pyarrow."""

    def run(args: argparse.Namespace) -> int:
        check_reading()
        with wrong_usage():
            status: int = import_module(f"..{module}", __name__).run(args)
        return status

    return run
