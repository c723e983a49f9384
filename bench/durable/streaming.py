"""Messages that are persistent, confirmed, consumed and acked, beside raw PUSH-PULL, which does none of that.

Time runs from the first `send` until the last message is confirmed, received, and its ack is on the broker's disk. The
reference stores nothing, encrypts nothing and has no confirms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import raw
from bench.figure import Bound, at_most
from bench.plan import Case, Family, Outcome, Row, Scale, row
from bench.processes import READY_S_MAX
from bench.sequence import RING_COUNT
from bench.stream import WARM_PART, faults, measure_stream

from . import peers
from .setting import Setting, queue_names, serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.processes import Troupe

SIZES = {
    # name: size in bytes, messages, least ratio to raw
    "16 B": (16, 1_500_000, 1.2),
    "100 B": (100, 1_000_000, 0.7),
    "1 KB": (1024, 250_000, 0.35),
}
QUEUES, QUEUES_COUNT = 100, 500_000
QUEUES_RATIO_MIN = 0.5
WRITTEN_MAX = 1.3
CREDIT: dict[str, Any] = {"prefetch": 200_000, "prefetch_bytes": 64 << 20}
WAYS = {
    # name in the table: queues, messages in a row to one queue
    f"{QUEUES} queues in turn": (QUEUES, 1),
    f"{QUEUES} queues, 100 in a row to each": (QUEUES, 100),
}
TURNS_PER_RING_MIN = 4


def confirmed(
    name: str, size_bytes: int, count: int, *, queues: int = 1, in_row: int = 1, way: str = "send"
) -> Case:
    """Make a case with one publisher and one program that consumes every queue."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        names = queue_names(queues)
        with serving(troupe) as setting:
            common: dict[str, Any] = {
                "size_bytes": size_bytes, "ring_count": ring_count(queues, in_row),
                "queues": names, "in_row": in_row,
            }  # fmt: skip
            consumer = setting.start("durable_consumer", **common, **CREDIT, wait=False)
            publisher = setting.start("durable_publisher", **common, way=way)
            consumer.hear(READY_S_MAX)
            # Whole rounds over all queues, in the warm-up too, so that every queue gets the same share of each phase.
            step = queues * in_row * WARM_PART
            outcome = measure_stream(
                troupe, publisher, [consumer], size_bytes=size_bytes,
                count=max(scale.count(count) // step, 1) * step,
            )  # fmt: skip
            counted = setting.broker.ask("statistics")
        return Outcome(
            {**outcome.values, "written_per_received": counted["written_per_received"]},
            wrong=outcome.wrong + counted["lost"],
            detail={**outcome.detail, "log": counted["log"], "intake": counted["intake"]},
        )

    return Case(name, run)


def ring_count(queues: int, in_row: int) -> int:
    """Return how many payloads the ring needs so that each queue has a strand of its own."""
    turn = queues * in_row
    return max(RING_COUNT // turn, TURNS_PER_RING_MIN) * turn


def filled_then_drained(name: str, size_bytes: int, count: int, *, queues: int = 1) -> Case:
    """Make a case that publishes everything without a consumer; then one program consumes all of it."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        counts = {"start": 0, "count": max(scale.count(count) // queues, 1) * queues}
        with serving(troupe) as setting:
            common: dict[str, Any] = {
                "size_bytes": size_bytes, "ring_count": ring_count(queues, 1),
                "queues": queue_names(queues), "in_row": 1,
            }  # fmt: skip
            sent = setting.start("durable_publisher", **common).ask("run", **counts)
            drained = drain(setting, common, counts["count"])
        return Outcome(
            {"publish_per_s": per_s(sent, counts["count"]), "drain_per_s": drained.values["per_s"]},
            wrong=drained.wrong,
            detail=drained.detail,
        )

    return Case(name, run)


def drain(setting: Setting, common: Mapping[str, Any], count: int) -> Outcome:
    """Start a consumer that takes `count` messages from sequence 0 on; its time includes subscribing."""
    consumer = setting.start("durable_consumer", **common, **CREDIT, paused=True)
    answer = consumer.ask("run", start=0, count=count)
    reports = answer["reports"]
    return Outcome(
        {"per_s": per_s(answer, count)},
        wrong=sum(faults(report) for report in reports),
        detail={"reports": reports},
    )


def per_s(answer: dict[str, int], count: int) -> float:
    return count / ((answer["end_ns"] - answer["start_ns"]) / 1e9)


def family() -> list[Family]:
    streaming = [one_queue(), many_queues(), filled()]
    own = {size: confirmed_name(size) for size in SIZES}
    streaming.append(peers.beside_peers(own, {size: SIZES[size][0] for size in SIZES}))
    return [
        Family(
            name="confirmed",
            cases=[case for cases, _ in streaming for case in cases],
            rows=[row for _, rows in streaming for row in rows],
            notes=peers.notes(),
        )
    ]


def confirmed_name(size: str) -> str:
    return f"confirmed, 1 queue, {size}"


def one_queue() -> tuple[list[Case], list[Row]]:
    cases: list[Case] = []
    rows: list[Row] = []
    for size, (size_bytes, count, least) in SIZES.items():
        reference, name = f"raw PUSH-PULL {size}", confirmed_name(size)
        cases += [raw.push_pull(reference, size_bytes, count), confirmed(name, size_bytes, count)]
        mark = Bound("ratio", "at least", least)
        rows.append(row(name, "msg/s", name, "per_s", mark, beside=reference))
        lists = f"{name}, send_many"
        cases.append(confirmed(lists, size_bytes, count, way="send_many"))
        rows.append(row(lists, "msg/s", lists, "per_s", mark, beside=reference))
    written = at_most(WRITTEN_MAX)
    name = "bytes written per byte received, 1 KB"
    rows.append(row(name, "", confirmed_name("1 KB"), "written_per_received", written))
    return cases, rows


def many_queues() -> tuple[list[Case], list[Row]]:
    cases, rows = [], []
    mark = Bound("ratio", "at least", QUEUES_RATIO_MIN)
    for way, (queues, in_row) in WAYS.items():
        name = f"confirmed, {way}, 100 B"
        cases.append(confirmed(name, 100, QUEUES_COUNT, queues=queues, in_row=in_row))
        rows.append(row(name, "msg/s", name, "per_s", mark, beside=confirmed_name("100 B")))
    return cases, rows


def filled() -> tuple[list[Case], list[Row]]:
    one = "publish without a consumer, then drain, 100 B"
    many = f"{one}, {QUEUES} queues in turn"
    cases = [
        filled_then_drained(one, 100, SIZES["100 B"][1]),
        filled_then_drained(many, 100, QUEUES_COUNT, queues=QUEUES),
    ]
    rows = [
        row(f"{name}: {what}", "msg/s", name, f"{what}_per_s")
        for name in (one, many)
        for what in ("publish", "drain")
    ]
    return cases, rows
