"""Millions of ready messages and ten thousand queues: what they weigh, and a restart over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.figure import Bound
from bench.plan import Case, Family, Outcome, Scale, row
from bench.sequence import RING_COUNT

from .setting import SETTLE_S, queue_names, serving
from .streaming import drain, per_s

if TYPE_CHECKING:
    from bench.processes import Troupe

MESSAGES, SIZE_BYTES = 10_000_000, 16
MESSAGES_ALONE = 1_000_000
QUEUES = 10_000
MB = 1e6
PUBLISH_S_MAX = 400.0

READY, ALONE = "10 M ready messages of 16 B", "1 M ready messages, a record and a routing key each"
DECLARED = "10,000 queues declared"
MESSAGES_MB_MAX, QUEUES_MB_MAX, DECLARES_MIN = 80.0, 100.0, 2000.0
RECOVERY_MB_MIN, RECOVERY_S_MAX = 500.0, 2.0


def ready_messages(name: str, count: int, *, way: str = "send", settle_s: float = SETTLE_S) -> Case:
    """Published without a consumer; weighed; the broker restarted over them; drained.

    Args:
        way: of roles/durable_publisher.py.
        settle_s: before each look at its memory.
    """

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        total = scale.count(count)
        with serving(troupe) as setting:
            names = queue_names(1)
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
            opened = setting.restart_broker().ready
            after = setting.rss_bytes(scale, settle_s) - idle
            ready = setting.broker.ask("statistics")["ready"]
            drained = drain(setting, common, total)
        return Outcome(
            {
                "more_rss_mb": more / MB, "restarted_rss_mb": after / MB,
                "publish_per_s": per_s(sent, total), "drain_per_s": drained.values["per_s"],
                **recovery(opened),
            },
            wrong=drained.wrong + abs(total - ready),
            detail={**drained.detail, "recovery": opened["recovery"]},
        )  # fmt: skip

    return Case(name, run)


def recovery(opened: dict[str, object]) -> dict[str, float]:
    """How fast the log was read, by its own report, and how long it took until all was open."""
    report, opened_s = opened["recovery"], opened["opened_s"]
    assert isinstance(report, dict)
    assert isinstance(opened_s, float)
    return {
        "recovery_mb_per_s": report["bytes_read"] / max(report["seconds"], 1e-9) / MB,
        "opened_s": opened_s,
    }


def declared_queues(name: str, count: int) -> Case:
    """Declared by one program, hundreds at a time outstanding."""

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
                "opened_s": recovery(opened)["opened_s"],
            },
            detail={"recovery": opened["recovery"]},
        )  # fmt: skip

    return Case(name, run)


def family() -> list[Family]:
    cases = [
        ready_messages(READY, MESSAGES),
        ready_messages(ALONE, MESSAGES_ALONE, way="alone"),
        declared_queues(DECLARED, QUEUES),
    ]
    rows = [
        row(f"{READY}, more RSS", "MB", READY, "more_rss_mb", at_most(MESSAGES_MB_MAX)),
        row(f"{READY}, more RSS after a restart", "MB", READY, "restarted_rss_mb"),
        row(f"{READY}, publish without a consumer", "msg/s", READY, "publish_per_s"),
        row(f"{READY}, drain after a restart", "msg/s", READY, "drain_per_s"),
        row("recovery, log read", "MB/s", READY, "recovery_mb_per_s", at_least(RECOVERY_MB_MIN)),
        row("recovery of 10 M messages", "s", READY, "opened_s", at_most(RECOVERY_S_MAX)),
        row(f"{ALONE}: more RSS", "MB", ALONE, "more_rss_mb"),
        row(f"{ALONE}: publish without a consumer", "msg/s", ALONE, "publish_per_s"),
        row(f"{ALONE}: drain after a restart", "msg/s", ALONE, "drain_per_s"),
        row(f"{ALONE}: recovery", "s", ALONE, "opened_s"),
        row(f"{DECLARED}, more RSS", "MB", DECLARED, "more_rss_mb", at_most(QUEUES_MB_MAX)),
        row(DECLARED, "declares/s", DECLARED, "declares_per_s", at_least(DECLARES_MIN)),
        row("recovery of 10,000 queues", "s", DECLARED, "opened_s"),
    ]
    return [Family(name="memory", cases=cases, rows=rows, rounds_max=1)]


def at_most(limit: float) -> Bound:
    return Bound("value", "at most", limit)


def at_least(limit: float) -> Bound:
    return Bound("value", "at least", limit)
