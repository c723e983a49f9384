"""`mesh replay`: sends what a broker has stored again."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from mesh.commands.options import (
    Commands,
    add_joining,
    count,
    nonempty_name,
    positive_seconds,
    settings,
)
from mesh.commands.terminal import print_stderr

from ..installed import check_spark
from ..options import check_existing_pattern, read_moment
from ..replay.errors import ReplayFailed, ReplayInterrupted
from ..replay.plan import (
    SPEED_MAX,
    ReplayPlan,
    read_destination,
    read_duration,
    read_number,
)
from ..settings import joining_options
from .quiet import quiet
from .reading import argparse_type, wrong_usage

CLUSTER, MASTER, TIMEOUT_S = "spark", "local[2]", 10.0

DESCRIPTION = """\
Send messages stored by a broker again: to queues and streams of the same names at another broker, or to
topics of the mesh. Every message sent is marked with x-replayed-from and x-replay-id; messages that are
already marked are skipped. Needs Spark (pip install '.[spark]' in the project's clone) and Java 17.

  mesh replay orders.data --to broker2 --speed 10 --max-gap 5s
  mesh replay orders.data --to 'replayed.>' --topic 'orders.>' --rate 5000 --sample 0.1
  mesh replay orders.data --to 's/^orders/test/' --where "length(value) > 100" --dry-run"""
EPILOG = """\
With the same --id, messages already stored in a broker's queues are not stored again, so an interrupted
replay can be continued. To topics, messages are sent at most once, whatever the id. --where is SQL over
the columns of docs/spark.md."""


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "replay", help="send messages stored by a broker again (needs Spark)",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    command.add_argument("directory", metavar="DIR", help="the broker's data directory")
    command.add_argument(
        "--to", required=True, type=argparse_type(read_destination), metavar="CLUSTER|TOPICS",
        help="cluster of a broker; or topics: '>' unchanged, 'replayed.>' with a prefix, "
        "'s/^orders/test/' renamed",
    )  # fmt: skip
    what = command.add_argument_group("selection")
    what.add_argument("--vhost", type=nonempty_name, default="/", metavar="V",
                      help="vhost, of both brokers (default /)")  # fmt: skip
    what.add_argument("--queue", type=nonempty_name, action="append", default=[], metavar="Q",
                      help="queue; repeatable")  # fmt: skip
    what.add_argument(
        "--stream", type=nonempty_name, action="append", default=[], metavar="S",
        help="stream; repeatable (default: all queues and streams)",
    )  # fmt: skip
    what.add_argument("--topic", type=argparse_type(check_existing_pattern, "--topic"), metavar="PATTERN",
                      help="pattern of topics, such as orders.*.created or orders.>")  # fmt: skip
    what.add_argument("--from", dest="from_us", type=argparse_type(read_moment, "--from"), metavar="T",
                      help="stored at this time or later: 2026-11-21T20:15, UTC unless it has a zone, or "
                      "seconds since 1970")  # fmt: skip
    what.add_argument("--until", dest="until_us", type=argparse_type(read_moment, "--until"), metavar="T",
                      help="stored before this time")  # fmt: skip
    what.add_argument("--where", metavar="SQL", help="condition on the columns")
    what.add_argument("--sample", type=argparse_type(read_number, "--sample", 1.0), default=1.0, metavar="SHARE",
                      help="share of the messages, such as 0.1; the same ones each time")  # fmt: skip
    what.add_argument(
        "--again", action="store_true", help="also send messages that were replayed before"
    )
    pace = command.add_argument_group("pace (default: as fast as possible)")
    pace.add_argument("--speed", type=argparse_type(read_number, "--speed", SPEED_MAX), default=0.0, metavar="X",
                      help="1: as originally, 10: ten times as fast")  # fmt: skip
    pace.add_argument("--rate", type=argparse_type(read_number, "--rate", 1e9), default=0.0, metavar="N",
                      help="at most N messages a second, shared by all tasks")  # fmt: skip
    pace.add_argument("--max-gap", type=argparse_type(read_duration, "--max-gap"), metavar="TIME",
                      help="cut longer pauses to this, such as 5s, before --speed")  # fmt: skip
    pace.add_argument("--loop", type=count, default=1, metavar="N", help="replay N times in a row")
    run_as = command.add_argument_group("run")
    run_as.add_argument("--id", default="", metavar="ID", help="id of this replay, see below")
    run_as.add_argument("--dry-run", action="store_true", help="only print what would be sent")
    run_as.add_argument(
        "--json", action="store_true", help="print the report as JSON, and no progress"
    )
    run_as.add_argument("--master", default=MASTER, help=f"Spark master (default {MASTER})")
    run_as.add_argument("--timeout", type=positive_seconds, default=TIMEOUT_S, metavar="SECONDS",
                        help=f"how long to look for the destination (default {TIMEOUT_S:g})")  # fmt: skip
    add_joining(command, CLUSTER)
    command.set_defaults(run=run)


@wrong_usage()
def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, whose text is one line, or WrongUsage."""
    plan = ReplayPlan(
        directory=args.directory, to=args.to, vhost=args.vhost, queues=tuple(args.queue),
        streams=tuple(args.stream), topic=args.topic, where=args.where, sample=args.sample,
        from_us=args.from_us, until_us=args.until_us, speed=args.speed, rate=args.rate,
        max_gap_s=args.max_gap, loop=args.loop, id=args.id, again=args.again,
    )  # fmt: skip
    plan.check()
    check_spark()
    from ..replay.preflight import check_exists, check_names, checked_options, destination_names

    joining = {
        **joining_options(settings(args)), "cluster": args.cluster, "vhost": args.vhost,
        "timeoutSeconds": str(args.timeout),
    }  # fmt: skip
    check_exists(plan, joining)
    names = destination_names(checked_options(plan, joining))
    check_names(plan, (*plan.queues, *plan.streams), names, args.cluster)
    with (
        tempfile.NamedTemporaryFile(prefix="mesh-replay-", suffix=".log") as log,
        quiet(log.fileno()),
    ):
        return _run(args, plan, joining, names)


def _run(
    args: argparse.Namespace,
    plan: ReplayPlan,
    joining: dict[str, str],
    names: frozenset[str],
) -> int:
    from ..replay.replay import one_line_errors, replay
    from ..sessions import session

    began = time.monotonic()
    is_interactive = sys.stderr.isatty() and not args.json
    if is_interactive:
        print_stderr("starting Spark, which may take a minute")
    with one_line_errors():
        spark = session(args.master, **{"spark.log.level": "OFF"})
    try:
        with _progress_bar(is_interactive) as progress:
            found = replay(
                spark, plan, joining, names=names, dry_run=args.dry_run, progress=progress
            )
    except (ReplayFailed, ReplayInterrupted) as error:
        _show({**error.report.plain(), "complete": False, "error": str(error)}, args.json)
        raise
    finally:
        with suppress(ConnectionError):  # The JVM was killed, which has been reported.
            spark.stop()
    summary = {
        **found.plain(),
        "dry_run": args.dry_run,
        "wall_seconds": round(time.monotonic() - began, 3),
    }
    _show(summary, args.json)
    if summary["sent"] and summary["sent"] == summary["nobody"]:
        print_stderr("no message reached a subscriber: no subscription matches these topics")
        return 1
    return 0


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary), flush=True)
        return
    for name, value in summary.items():
        print(f"{name.removesuffix('_us').replace('_', ' '):<14} {_formatted(name, value)}")


def _formatted(name: str, value: Any) -> str:
    if name.endswith("_us"):
        return (
            f"{datetime.fromtimestamp(value / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f} UTC" if value else "-"
        )
    if isinstance(value, dict):
        value = [f"{one} {count:,}" for one, count in value.items()]
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if type(value) is int else str(value)


@contextmanager
def _progress_bar(is_shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on the terminal during the block."""
    if not is_shown:
        yield None
        return
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        share = min(1.0, done / max(1, total))
        rate = done / max(0.001, time.monotonic() - began)
        bar = ("#" * round(30 * share)).ljust(30, ".")
        sys.stderr.write(f"\r{bar} {share:4.0%} {done:,} of {total:,}, {rate:,.0f}/s ")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
