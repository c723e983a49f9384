"""Millions of ready messages, and ten thousand queues: their memory, and how long a broker takes to start with them.

Starts are measured after a SIGKILL, after all checkpoints were removed, and (queues) after an orderly end.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bench.figure import at_least, at_most
from bench.plan import Case, Family, Outcome, Row, Scale, row
from bench.sequence import RING_COUNT

from .setting import SETTLE_S, queue_names, serving
from .streaming import drain, per_s

if TYPE_CHECKING:
    from bench.processes import Troupe

MESSAGES, SIZE_BYTES = 10_000_000, 16
QUEUES = 10_000
MB = 1e6
PUBLISH_S_MAX = 900.0
"""MESSAGES_ALONE took 600 s on the slowest machine so far."""
STARTS = 5
"""Starts without checkpoints, of which the median is reported: single ones take 0.1 s, or half as much again."""

MESSAGES_UNLIKE, MESSAGES_ALONE = 1_000_000, 400_000
READY = "10 M ready messages of 16 B"
KEYS = "10 M ready messages, a routing key each"
TURNS = "10 M ready messages, to two queues in turn through an exchange"
UNLIKE = "1 M ready messages, of two times to live in turn: a record each"
ALONE = "400,000 ready messages, each confirmed before the next: a record each"
DECLARED = "10,000 queues declared"
MESSAGES_MB_MAX, QUEUES_MB_MAX, DECLARES_MIN = 80.0, 100.0, 2000.0
RECOVERY_MB_MIN, RECOVERY_S_MAX = 500.0, 2.0


def ready_messages(
    name: str, count: int, *, way: str = "send", queues: int = 1, settle_s: float = SETTLE_S,
    starts: int = STARTS,
) -> Case:  # fmt: skip
    """Make a case of `count` messages that are published without a consumer.

    The broker's memory is measured. Then it is killed and started, restarted `starts` times without checkpoints,
    and drained.

    Args:
        way: see roles/durable_publisher.py.
        settle_s: seconds to wait before each measurement of memory.
        starts: count of starts without checkpoints.
    """

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        total = scale.count(count)
        with serving(troupe) as setting:
            names = queue_names(queues)
            control = setting.start("durable_control")
            idle = setting.rss_bytes(scale, settle_s)
            common: dict[str, Any] = {
                "size_bytes": SIZE_BYTES, "ring_count": RING_COUNT, "queues": names, "in_row": 1,
            }  # fmt: skip
            publisher = setting.start("durable_publisher", **common, way=way)
            publisher.tell("run", start=0, count=total)
            sent = publisher.hear(PUBLISH_S_MAX)
            more = setting.rss_bytes(scale, settle_s) - idle
            for role in (publisher, control):
                troupe.end(role)
            opened = setting.restart_broker(killed=True).ready
            after = setting.rss_bytes(scale, settle_s) - idle
            reads = [setting.restart_broker(checkpoints=False).ready for _ in range(starts)]
            read = sorted(reads, key=itemgetter("opened_s"))[starts // 2]
            ready = setting.broker.ask("statistics")["ready"]
            drained = drain(setting, common, total)
        return Outcome(
            {
                "more_rss_mb": more / MB, "publish_per_s": per_s(sent, total),
                "opened_s": opened["opened_s"], "restarted_rss_mb": after / MB,
                "read_s": read["opened_s"], "read_mb_per_s": read_mb_per_s(read["recovery"]),
                "drain_per_s": drained.values["per_s"],
            },
            wrong=drained.wrong + abs(total - ready),
            detail={**drained.detail, "killed": opened["recovery"], "whole": read["recovery"]},
        )  # fmt: skip

    return Case(name, run)


def read_mb_per_s(recovery: dict[str, float]) -> float:
    """Return how fast the log was read, according to its own report."""
    return recovery["bytes_read"] / max(recovery["seconds"], 1e-9) / MB


def declared_queues(name: str, count: int) -> Case:
    """Make a case in which one program declares `count` queues, hundreds at a time."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        total = scale.count(count)
        with serving(troupe) as setting:
            control = setting.start("durable_control")
            idle = setting.rss_bytes(scale)
            declared = control.ask("declare", queues=queue_names(total))
            more = setting.rss_bytes(scale) - idle
            troupe.end(control)
            opened = setting.restart_broker().ready
        return Outcome(
            {
                "more_rss_mb": more / MB, "declares_per_s": per_s(declared, total),
                "opened_s": opened["opened_s"],
            },
            detail={"recovery": opened["recovery"]},
        )  # fmt: skip

    return Case(name, run)


def family() -> list[Family]:
    cases = [
        ready_messages(READY, MESSAGES),
        ready_messages(KEYS, MESSAGES, way="keys"),
        ready_messages(TURNS, MESSAGES, way="turns", queues=2),
        ready_messages(UNLIKE, MESSAGES_UNLIKE, way="unlike"),
        ready_messages(ALONE, MESSAGES_ALONE, way="alone"),
        declared_queues(DECLARED, QUEUES),
    ]
    unmarked = [replace(one, bounds=()) for one in _of_ready(UNLIKE)]
    rows = [*_of_ready(READY), *_of_ready(KEYS), *_of_ready(TURNS), *_of_ready(ALONE), *unmarked]
    rows += [
        row(f"{DECLARED}, more RSS", "MB", DECLARED, "more_rss_mb", at_most(QUEUES_MB_MAX)),
        row(DECLARED, "declares/s", DECLARED, "declares_per_s", at_least(DECLARES_MIN)),
        row("recovery of 10,000 queues", "s", DECLARED, "opened_s"),
    ]
    return [Family(name="memory", cases=cases, rows=rows, rounds_max=1)]


def _of_ready(name: str) -> list[Row]:
    mb_per_s, mb, s = at_least(RECOVERY_MB_MIN), at_most(MESSAGES_MB_MAX), at_most(RECOVERY_S_MAX)
    return [
        row(f"{name}: recovery without checkpoints, log read", "MB/s", name, "read_mb_per_s", mb_per_s),
        row(f"{name}: recovery without checkpoints", "s", name, "read_s"),
        row(f"{name}, more RSS", "MB", name, "more_rss_mb", mb),
        row(f"{name}: start after a SIGKILL", "s", name, "opened_s", s),
        row(f"{name}: more RSS after that", "MB", name, "restarted_rss_mb"),
        row(f"{name}: publish without a consumer", "msg/s", name, "publish_per_s"),
        row(f"{name}: drain after a restart", "msg/s", name, "drain_per_s"),
    ]  # fmt: skip
