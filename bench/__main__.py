"""`python -m bench mesh|durable|spark [--json FILE] [--only NAME ...] [--rounds N] [--quick]`

Progress on stderr, the table on stdout. Ctrl-C ends every child and keeps what was measured.
Exit status: 0 measured, whether or not the marks hold; 1 something could not be measured;
2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import balance, finding, idle, machine, requests, resets, topics, tunnels
from .durable import latency, memory, streaming
from .figure import document
from .plan import Family, Scale, pick
from .session import Session
from .spark import reading, replaying
from .table import render

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = {"mesh": 5, "durable": 3, "spark": 3}
INTERRUPTED = 130

BENCHES = {
    "mesh": (topics, requests, tunnels, balance, resets, idle, finding),
    "durable": (streaming, latency, memory),
    "spark": (reading, replaying),
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure the mesh, the durable tier, or the Spark tier."
    )
    parser.add_argument("bench", choices=sorted(BENCHES), help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to FILE")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a family (mesh: topics, fan-out, requests, tunnels, balance, resets, idle, finding; "
        "durable: confirmed, confirm, memory; spark: reading, replaying) or part of a figure's name; may be repeated",
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        help=f"default {', '.join(f'{bench} {rounds}' for bench, rounds in ROUNDS.items())}, "
        "with --quick 1",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small counts, to try the bench: no figures to quote"
    )
    parser.add_argument(
        "--profile", type=Path, metavar="DIR", help="cProfile of every role; rates mean nothing"
    )
    return parser


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"want at least 1, got {value}")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    families = [family for module in BENCHES[args.bench] for family in module.family()]
    try:
        families = pick(families, args.only)
    except ValueError as error:
        parser().error(str(error))
    if args.profile:
        args.profile.mkdir(parents=True, exist_ok=True)
    return run(args, families)


def run(args: argparse.Namespace, families: list[Family]) -> int:
    facts = machine.facts()
    say(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average_before'][0]}")
    directory = facts["temporary_directory"]
    say(f"10 M turns of an empty loop: {facts['loop_10m_s']:.2f} s; files on {directory}")
    facts["notes"] = [note for family in families for note in family.notes]
    for note in facts["notes"]:
        say(note)
    session = Session(
        families,
        rounds=args.rounds or (1 if args.quick else ROUNDS[args.bench]),
        scale=Scale(quick=args.quick),
        say=say,
        profile=str(args.profile.resolve()) if args.profile else None,
    )
    status = 0
    try:
        session.run()
    except KeyboardInterrupt:
        say("interrupted: what was measured until now")
        status = INTERRUPTED
    figures = session.figures()
    facts["load_average_after"] = machine.load_average()
    print(render(figures))
    if args.json:
        content = document(facts, machine.commit(), figures)
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    for failure in session.failures:
        say(f"not measured: {failure}")
    return status or (1 if session.failures else 0)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
