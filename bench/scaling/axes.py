"""The axes along which something grows step by step, and the values measured at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import idle, topics
from bench.durable import memory
from bench.plan import Case, Family, Row
from bench.sequence import SEQUENCE_BYTES

from . import nodes

KIB, MIB = 1 << 10, 1 << 20
SIZES = {
    # size in bytes: messages of it
    16: 1_000_000, 128: 1_000_000, KIB: 300_000, 8 * KIB: 60_000, 64 * KIB: 10_000,
    512 * KIB: 1_500, 4 * MIB: 200, 16 * MIB: 50,
}  # fmt: skip
DELIVERIES = 400_000
PAYLOAD_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: a case for each step, in ascending order, all with the same `values`."""

    name: str
    unit: str
    cases: Mapping[int, Case]
    values: Mapping[str, tuple[str, str]]
    """By name of a case's value: its name in the table, and its unit."""

    def row_name(self, step: int, value: str) -> str:
        return f"{step:,} {self.unit}: {self.values[value][0]}"

    def family(self) -> Family:
        return Family(
            name=self.name,
            cases=list(self.cases.values()),
            rows=[
                Row(
                    name=self.row_name(step, value), unit=unit, case=case.name, value=value,
                )
                for step, case in self.cases.items()
                for value, (_, unit) in self.values.items()
            ],
        )  # fmt: skip


def steps(numbers: Sequence[int], make: Callable[[int], Case]) -> dict[int, Case]:
    return {number: make(number) for number in numbers}


DOUBLING = (1, 2, 4, 8, 16, 32, 64)
STREAM = {
    "per_s": ("deliveries", "msg/s"), "per_cpu_s": ("deliveries a CPU second", "msg/CPU-s"),
}  # fmt: skip
HUB = {
    "more_rss_mb": ("memory of one node", "MB more"),
    "cpu_percent": ("CPU of that node, at rest", "% of a core"),
}
MESSAGES = {
    **HUB,
    "request_us": ("CPU of a request, 256 B", "us"),
    "delivery_us": ("CPU of a delivery, 256 B to all", "us"),
}

AXES = (
    Axis(
        name="nodes", unit="nodes: linked with all at rest, with one for messages", values=MESSAGES,
        cases=steps(DOUBLING, lambda count: nodes.nodes(f"{count} nodes", count)),
    ),
    Axis(
        name="links", unit="links of one node", values=HUB,
        cases=steps(
            (*DOUBLING, 200),
            lambda count: idle.many_links(f"{count} links", count, settle_s=nodes.SETTLE_S),
        ),
    ),
    Axis(
        name="topics", unit="topics in turn, 100 B", values=STREAM,
        cases=steps(
            (1, 10, 100, 1000),
            lambda count: topics.stream(
                f"{count} topics", PAYLOAD_BYTES, DELIVERIES, topics=count
            ),
        ),
    ),
    Axis(
        name="subscriptions", unit="subscriptions in one node, 100 B", values=STREAM,
        cases=steps(
            DOUBLING,
            lambda count: topics.stream(
                f"{count} subscriptions", PAYLOAD_BYTES, DELIVERIES // count, subscribers=count
            ),
        ),
    ),
    Axis(
        name="depth", unit="ready messages of 16 B in a queue",
        values={
            "more_rss_mb": ("memory of the broker", "MB more"),
            "publish_per_s": ("publish, confirmed, nobody consumes", "msg/s"),
            "drain_per_s": ("consume and ack after a restart", "msg/s"),
        },
        cases=steps(
            (1000, 10_000, 100_000, 1_000_000),
            lambda count: memory.ready_messages(
                f"{count} ready", count, settle_s=nodes.SETTLE_S
            ),
        ),
    ),
    Axis(
        name="size", unit="bytes a message",
        values={"mb_per_s": ("payloads", "MB/s"), **STREAM},
        cases={
            size: topics.stream(f"{size} bytes", size, count, way="publish_many")
            for size, count in SIZES.items()
        },
    ),
)  # fmt: skip

assert min(SIZES) >= SEQUENCE_BYTES, "the sequence must fit"
