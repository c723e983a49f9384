"""`mesh-broker status`: the counters of a running broker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from mesh.commands.options import Commands
from mesh.commands.terminal import printable

from .options import add_broker_options, connected, sizes


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "status", help="show queues, streams and the log of a running broker",
        description="Show the queues, streams and statistics of a vhost of a running broker. Exit status 1 "
        "if\nits store has stopped.",
    )  # fmt: skip
    command.add_argument(
        "--json", action="store_true", help="print one JSON document with all statistics"
    )
    add_broker_options(command)
    command.set_defaults(run=status)


async def status(args: argparse.Namespace) -> int:
    async with connected(args) as broker:
        found = await broker.statistics()
    if args.json:
        print(json.dumps(found))
    else:
        for line in _lines(found):
            print(printable(line))
    return 1 if found["log"]["failure"] else 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    log, intake = found["log"], found["intake"]
    for name, one in found["queues"].items():
        dead = f"{one['dead']} to be dead-lettered, " if one["dead"] else ""
        yield (
            f"queue {name}: {one['ready']} ready, {one['unacked']} unacked, {dead}"
            f"{sizes(one['size_bytes'])}, {one['consumers']} consumers{_oldest(one)}, {one['durability']}"
            f"{_rates(one, 'published', 'delivered', 'acked')}{_dropped(one)}{_disk(one)}"
        )
    for name, one in found["streams"].items():
        # In the words of `inspect`.
        held = (
            f"offsets {one['start']} to {one['end'] - 1}, {sizes(one['size_bytes'])}{_oldest(one)}"
            if one["end"] > one["start"]
            else f"empty, the next offset is {one['end']}"
        )
        yield (
            f"stream {name}: {held}, {len(one['cursors'])} cursors, {one['missed']} missed"
            f"{_rates(one, 'published', 'delivered')}{_disk(one)}"
        )
    if found["hidden"]:
        yield f"queues and streams that this cluster may not see: {found['hidden']}"
    yield (
        f"received: {intake['received']} messages, {sizes(intake['received_bytes'])}; duplicates "
        f"{intake['duplicates']}, refused {intake['refused']}, routed nowhere {intake['dropped']}"
    )
    yield (
        f"log: durable up to {log['durable_end']}, {log['segments']} segments, "
        f"{log['commits']} commits{_written(found)}"
    )
    if found["confirm_us"]:
        yield f"time to disk: {_within(found['confirm_us'])}"
    if log["full"]:
        yield "log: THE DISK IS FULL: publishing is refused until there is space"
    if log["overdue_s"] > 0:
        yield f"log: THE DISK HANGS: a commit is {log['overdue_s']:.0f} s over its limit"
    if log["failure"]:
        yield f"log: THE STORE HAS STOPPED: {log['failure']}"
    if found["lost"]:
        yield f"messages that could not be read: {found['lost']}"


def _oldest(one: dict[str, Any]) -> str:
    """The age of the oldest message; empty if there is none."""
    age_s = one["oldest_s"]
    return "" if age_s is None else f", oldest {age_s:.0f} s"


def _rates(one: dict[str, Any], *names: str) -> str:
    """The rates of the last interval; empty if all are zero."""
    rates = [(one[f"{name}_per_s"], name) for name in names]
    if not any(rate for rate, _ in rates):
        return ""
    return "; per second: " + ", ".join(f"{rate:.1f} {name}" for rate, name in rates)


def _dropped(one: dict[str, Any]) -> str:
    """The numbers of dropped messages by reason; empty if there are none."""
    counts = one["dropped"].items()
    return "; dropped: " + ", ".join(f"{count} {why}" for why, count in counts) if counts else ""


def _disk(one: dict[str, Any]) -> str:
    """How long storing took; empty if nothing was stored."""
    return (
        f"; time to disk: {_within(one['confirm_us'])}{_written(one)}" if one["confirm_us"] else ""
    )


def _written(one: dict[str, Any]) -> str:
    ratio = one["written_per_received"]
    return "" if ratio is None else f", {ratio:.2f} bytes written per byte received"


def _within(counts: dict[str, int]) -> str:
    half, most = (_within_us(counts, share) for share in (0.5, 0.99))
    return f"half of all records within {half / 1e3:g} ms, 99 % within {most / 1e3:g} ms"


def _within_us(counts: dict[str, int], share: float) -> int:
    """Return the smallest bound of a histogram below which at least this share of all values lies."""
    bounds = sorted(counts, key=int)
    so_far = accumulate(counts[bound] for bound in bounds)
    wanted = share * sum(counts.values())
    return next(int(bound) for bound, count in zip(bounds, so_far, strict=True) if count >= wanted)
