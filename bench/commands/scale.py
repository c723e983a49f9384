"""`mesh-bench scale`: how costs grow along each axis."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.plan import Scale
from bench.scaling.axes import AXES, Axis

from .compare import default_name
from .usage import UsageError, made, positive, report, run_rounds, say, surroundings

NAMES = tuple(axis.name for axis in AXES)
FILE = "scale.json"


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "scale", help=f"how the mesh's costs grow: {', '.join(NAMES)}"
    )
    parser.add_argument("--axes", metavar="A,B,...", default=",".join(NAMES), help="default: all")
    parser.add_argument("--runs", type=positive, default=1, metavar="N", help="rounds (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for scale.json")
    parser.add_argument(
        "--quick", action="store_true", help="short runs, to try it: no figures to quote"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    wanted = args.axes.split(",")
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"no axis is called {name!r}; there are {', '.join(NAMES)}")
    axes = [axis for axis in AXES if axis.name in wanted]
    out = made(args.out or Path("bench-results") / default_name(), "--out")
    if (out / FILE).exists():
        raise UsageError(f"--out {out}: there are results of another run in it")
    facts = surroundings([])
    figures, failures, status = run_rounds(
        [axis.family() for axis in axes], rounds=args.runs, scale=Scale(quick=args.quick)
    )
    report(facts, figures, failures, out / FILE, axes=[lines(axis, figures) for axis in axes])
    say(f"written to {out}/{FILE}")
    return status


def lines(axis: Axis, figures: list[Figure]) -> dict[str, Any]:
    """Return each value as a line over the steps of the axis, without steps that were not measured."""
    found = {figure.name: figure.value for figure in figures}
    return {
        "name": axis.name,
        "unit": axis.unit,
        "lines": {
            f"{words}, {unit}": [
                [step, value_at]
                for step in axis.cases
                if (value_at := found[axis.row_name(step, value)]) is not None
            ]
            for value, (words, unit) in axis.values.items()
        },
    }
