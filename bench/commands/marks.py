"""`mesh-bench mesh|durable|spark`: the project's own figures, against the marks they must reach."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench import balance, finding, idle, requests, resets, steps, topics, tunnels
from bench.durable import latency, memory, streaming
from bench.durable import steps as durable_steps
from bench.plan import Scale, pick
from bench.spark import reading, replaying

from .usage import UsageError, made, positive, report, run_rounds, surroundings

ROUNDS = {"mesh": 5, "durable": 3, "spark": 3}
BENCHES: dict[str, tuple[Any, ...]] = {
    "mesh": (topics, requests, tunnels, balance, resets, idle, finding, steps),
    "durable": (streaming, latency, memory, durable_steps),
    "spark": (reading, replaying),
}
FAMILIES = {
    "mesh": "topics, fan-out, requests, tunnels, balance, resets, idle, finding, steps",
    "durable": "confirmed, confirm, memory, steps",
    "spark": "reading, replaying",
}


def add(commands: Any) -> None:
    for bench in BENCHES:
        parser: argparse.ArgumentParser = commands.add_parser(
            bench, help=f"the marks of {bench}/: {FAMILIES[bench]}"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to FILE")
        parser.add_argument(
            "--only", action="append", default=[], metavar="NAME",
            help=f"a family ({FAMILIES[bench]}) or part of a figure's name; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--rounds", type=positive, metavar="N",
            help=f"default {ROUNDS[bench]}, with --quick 1",
        )  # fmt: skip
        parser.add_argument(
            "--quick", action="store_true", help="small counts, to try it: no figures to quote"
        )
        parser.add_argument(
            "--profile", type=Path, metavar="DIR", help="cProfile of every role; rates mean nothing"
        )
        parser.set_defaults(run=run, bench=bench)


def run(args: argparse.Namespace) -> int:
    families = [family for module in BENCHES[args.bench] for family in module.family()]
    try:
        families = pick(families, args.only)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if args.profile:
        made(args.profile, "--profile")
    if args.json:
        made(args.json.parent, "--json")
        if args.json.is_dir():
            raise UsageError(f"--json {args.json}: a directory")
    facts = surroundings([note for family in families for note in family.notes])
    figures, failures, status = run_rounds(
        families,
        rounds=args.rounds or (1 if args.quick else ROUNDS[args.bench]),
        scale=Scale(quick=args.quick),
        profile=str(args.profile.resolve()) if args.profile else None,
    )
    report(facts, figures, failures, args.json)
    return status
