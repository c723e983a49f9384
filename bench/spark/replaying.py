"""Messages that a broker has stored, sent again by Spark to a subscribed node of the mesh.

At full speed: the rate is that of the tasks, from when they have joined until members have taken everything; starting
Spark and counting the messages come before. Every payload that arrives is checked. Paced: messages that were published
at a steady rate are sent ten times as fast; lateness is as reported by the sink.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.durable.setting import Setting, queue_names, serving
from bench.figure import at_least, at_most
from bench.plan import Case, Family, Outcome, Row, Scale, row
from bench.sequence import ring_count
from bench.stream import faults, knock_until_ready

if TYPE_CHECKING:
    from bench.processes import Role, Troupe

SIZE_BYTES, COUNT = 100, 2_000_000
PER_S_MIN = 250_000
QUEUES = {"one queue": 1, "four queues": 4}
PACED_S, PACED_PER_S, SPEED = 30, 1_000, 10
"""So 10,000 messages per second are sent."""
LATE_MS_MAX = 5.0
PACED = f"replayed at {SPEED}x, {SPEED * PACED_PER_S:,} msg/s"
ANSWER_S_MAX, START_S_MAX = 300.0, 60.0
"""Time limits: for a whole replay; for the start of Spark, and from then to its first message."""


def name_of(queues: str) -> str:
    return f"replayed into the mesh, 100 B, {queues}"


def replaying(
    name: str, queues: int, count: int, *, per_s: int | None = None, speed: float = 0.0
) -> Case:
    """Make a case: publish at full speed or `per_s`, then replay at full speed or at `speed`."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        with serving(troupe) as setting:
            common = settings(queues)
            wanted = scale.count(count)
            publisher = setting.start("durable_publisher", **common)
            publisher.ask("run", start=0, count=wanted, per_s=per_s)
            return replayed(troupe, setting, common, wanted, speed=speed)

    return Case(name, run)


def settings(queues: int) -> dict[str, Any]:
    """Return the settings of all roles: the mesh's roles use topics with the same names as the queues."""
    return {
        "size_bytes": SIZE_BYTES, "ring_count": ring_count(queues, SIZE_BYTES), "queues": queue_names(queues),
        "in_row": 1, "topics": queues, "subscribers": 1,
    }  # fmt: skip


def replayed(
    troupe: Troupe, setting: Setting, common: dict[str, Any], count: int, *, speed: float
) -> Outcome:
    """Replay `count` messages to one subscriber."""
    subscriber = listening(setting, common)
    spark = setting.start("spark_replayer", data=str(Path(setting.data) / "store"), wait=False)
    spark.hear(START_S_MAX)
    subscriber.tell("run", start=0, count=count, iterator="batches", silence_s=START_S_MAX)
    spark.tell("replay", speed=speed)
    report = spark.hear(ANSWER_S_MAX)["report"]
    reports = subscriber.hear(ANSWER_S_MAX)["reports"]
    return Outcome(
        {"per_s": report["per_second"], "late_ms_p99": report["late_ms_p99"]},
        wrong=sum(map(faults, reports)),
        detail={"report": report, "reports": reports, "usage": str(troupe.usage())},
    )


def listening(setting: Setting, common: dict[str, Any]) -> Role:
    """Start a subscriber, and return it once its interest is known."""
    knocker = setting.start("mesh_publisher", **common)
    subscriber = setting.start("mesh_subscriber", **common, wait=False)
    knock_until_ready(knocker, [subscriber])
    subscriber.ask("drain")
    return subscriber


def family() -> list[Family]:
    cases, rows = [], list[Row]()
    for words, queues in QUEUES.items():
        name = name_of(words)
        cases.append(replaying(name, queues, COUNT))
        rows.append(row(name, "msg/s", name, "per_s", at_least(PER_S_MIN)))
    cases.append(replaying(PACED, 1, PACED_S * PACED_PER_S, per_s=PACED_PER_S, speed=SPEED))
    mark = at_most(LATE_MS_MAX)
    rows.append(row(f"{PACED}: lateness p99", "ms", PACED, "late_ms_p99", mark))
    return [Family(name="replaying", cases=cases, rows=rows)]
