"""`mesh-bench page`: a page such as docs/performance.md and its plots, from a directory of results.

A directory with mesh.json, durable.json or spark.json, as written by `mesh-bench mesh|durable|spark --json`, gives the
tables of the marks.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .usage import UsageError, needs, say


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "page", help="a Markdown page with plots, from results"
    )
    parser.add_argument("results", type=Path, metavar="DIR", help="what --out of the others named")
    parser.add_argument(
        "--to", type=Path, default=Path("docs/performance.md"), metavar="FILE",
        help="default %(default)s; plots go to figures/NAME/ beside it",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    needs("matplotlib")
    # Imported here, as measuring needs no plotting library.
    from bench.report.page import write

    try:
        write(args.results, args.to)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from None
    except ValueError as error:
        raise UsageError(f"{args.results}: not what mesh-bench writes: {error}") from None
    say(f"written to {args.to}")
    return 0
