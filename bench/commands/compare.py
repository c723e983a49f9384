"""`mesh-bench throughput|latency|compare`: systems compared, round by round."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bench import machine
from bench.comparison import latency, throughput
from bench.latency.workloads import WORKLOADS
from bench.plan import Family, Scale
from bench.processes import interrupts_wait
from bench.report.results import COMPARISONS
from bench.systems import CLIENTS, PACKAGES, SYSTEMS
from bench.systems.system import System

from .usage import UsageError, made, needs, positive, report, run_rounds, say, seconds, surroundings

ROUNDS = {"throughput": 1, "latency": 1, "compare": 5}
HELP = {
    "throughput": "one producer to one consumer, as fast as they can",
    "latency": "an open load of requests at fixed rates, full distributions",
    "compare": "both, several times, interleaved",
}
THROUGHPUT_S_MAX = 20.0
LATENCY_S = 30.0
SAMPLES = {".hgrm", ".npz"}


def add(commands: Any) -> None:
    for name, words in HELP.items():
        parser: argparse.ArgumentParser = commands.add_parser(name, help=words)
        parser.add_argument(
            "--systems", metavar="A,B,...", help="default: all that are installed; see `setup`"
        )
        parser.add_argument(
            "--runs", type=positive, default=ROUNDS[name], metavar="N",
            help=f"rounds over all systems (default {ROUNDS[name]})",
        )  # fmt: skip
        parser.add_argument(
            "--out", type=Path, metavar="DIR",
            help="for the JSON and the histograms (default bench-results/TIME-COMMIT)",
        )  # fmt: skip
        parser.add_argument(
            "--quick", action="store_true", help="short runs, to try it: no figures to quote"
        )
        if name != "latency":
            add_throughput(parser)
        if name != "throughput":
            add_latency(parser)
        parser.set_defaults(run=run)


def add_throughput(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--count", type=positive, default=throughput.COUNT, metavar="N",
        help=f"messages of a run (default {throughput.COUNT:,})",
    )  # fmt: skip
    parser.add_argument(
        "--size", type=positive, default=throughput.SIZE_BYTES, metavar="BYTES",
        help=f"of each (default {throughput.SIZE_BYTES}; at least {throughput.SIZE_BYTES_MIN})",
    )  # fmt: skip
    parser.add_argument(
        "--seconds-max", type=seconds, default=THROUGHPUT_S_MAX, metavar="S",
        help="fewer messages for who would take longer (default %(default)s)",
    )  # fmt: skip


def add_latency(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workloads", metavar="L1,L2,...", default=",".join(WORKLOADS),
        help="; ".join(f"{one.name} {one.words}" for one in WORKLOADS.values()),
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=seconds, default=LATENCY_S, metavar="S",
        help="of each run (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--warm", type=seconds, default=latency.WARM_S, metavar="S",
        help="before that, not counted (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=positive, default=1, metavar="N",
        help="at least so many a run: 1e7 go as deep as 99.9999 %%",
    )  # fmt: skip
    parser.add_argument(
        "--keep-samples", action="store_true", help="keep the samples themselves, as .npz"
    )


def run(args: argparse.Namespace) -> int:
    systems, notes = pick(args.systems)
    names = dict.fromkeys(args.workloads.split(",")) if "workloads" in args else []
    workloads = [named(WORKLOADS, name, "workload") for name in names]
    families: list[Family] = []
    if "size" in args and args.size < throughput.SIZE_BYTES_MIN:
        raise UsageError(f"--size {args.size}: want at least {throughput.SIZE_BYTES_MIN}")
    if not any(measures(args, system) for system in systems):
        raise UsageError(f"{', '.join(one.name for one in systems)}: nothing that is measured here")
    if "workloads" in args:
        needs("numpy")
    out = directory(args.out, args.command)
    if "size" in args:
        families.append(throughput.family(systems, args.size, args.count, args.seconds_max))
    if "workloads" in args:
        lasting = latency.Lasting(args.seconds, args.warm, args.samples)
        families += latency.families(systems, workloads, lasting, out)
    facts = surroundings(notes) | measured(args, systems)
    figures, failures, status = run_rounds(
        families, rounds=args.runs, scale=Scale(quick=args.quick)
    )
    with interrupts_wait():
        report(facts, figures, failures, out / f"{args.command}.json")
        if "workloads" in args:
            # Imported here, as numpy may be missing where only `setup` or `throughput` is used.
            from bench.comparison.histograms import write_histograms

            files = {run["file"] for figure in figures for run in figure.runs if "file" in run}
            write_histograms(out, files, keep=args.keep_samples)
        say(f"written to {out}/")
    return status


def measures(args: argparse.Namespace, system: System) -> bool:
    """Return whether the command runs `system`: some are only for full throttle, others only for the load."""
    return ("size" in args and system.throughput) or ("workloads" in args and system.latency)


def directory(wanted: Path | None, command: str) -> Path:
    """Make the directory for the results, and check that it has no results of another run.

    Raises:
        UsageError: it cannot be made, or has such results, which would be mixed with the new ones.
    """
    out = made((wanted or Path("bench-results") / default_name()).resolve(), "--out")
    held = {
        file.name for file in out.iterdir() if file.suffix in SAMPLES or file.name in COMPARISONS
    }
    # `latency` may write beside throughput.json: these are different figures, and a page shows both.
    if held - ({"throughput.json"} if command == "latency" else set()):
        raise UsageError(f"--out {out}: there are results of another run in it")
    return out


def measured(args: argparse.Namespace, systems: Sequence[System]) -> dict[str, Any]:
    """Return the options, the versions and the time of a disk sync, for the readers of the figures."""
    asked = {"runs": args.runs, "quick": args.quick}
    for name in ("count", "size", "seconds_max", "seconds", "warm", "samples"):
        if name in args:
            asked[name] = getattr(args, name)
    versions = machine.versions(CLIENTS, PACKAGES)
    for system in systems:
        versions |= system.versions()
    return {
        "asked": asked,
        "versions": versions,
        "disk_sync_p50_us": machine.sync_p50_us(),
    }


def pick(wanted: str | None) -> tuple[list[System], list[str]]:
    """Return the systems to run, and notes on those that are not installed. Raises UsageError if a name is unknown."""
    chosen = (
        [named(SYSTEMS, name, "system") for name in dict.fromkeys(wanted.split(","))]
        if wanted
        else list(SYSTEMS.values())
    )
    missing = {system.name: why for system in chosen if (why := system.missing())}
    notes = [f"{name} is skipped: {why}" for name, why in missing.items()]
    present = [system for system in chosen if system.name not in missing]
    if not present:
        raise UsageError("; ".join(notes))
    return present, notes


def named(known: Any, name: str, what: str) -> Any:
    if name not in known:
        near = [one for one in known if name in one] or get_close_matches(name, known)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"no {what} is called {name!r}; {hint}")
    return known[name]


def default_name() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{machine.commit()[:7]}"
