"""Streams from one sender to one or more receivers: the rate of delivery of a fixed count, after a warm-up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .plan import Outcome
from .processes import ANSWER_S_MAX, READY_S_MAX, MeasurementFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .processes import Role, Troupe
    from .usage import Usage

KNOCK_S = 0.02
WARM_PART = 10
"""The warm-up sends a tenth of the count first, which is not measured."""


def measure_stream(
    troupe: Troupe,
    sender: Role,
    receivers: Sequence[Role],
    *,
    size_bytes: int,
    count: int,
    **how: Any,
) -> Outcome:
    """Measure from the sender's first message until the sender and the last receiver are done.

    Rates count deliveries: one message to eight subscriptions is eight deliveries.

    Args:
        how: facts added to the order that both sides get.
    """
    warm = count // WARM_PART
    if warm:  # Receivers that wait for 0 messages would report only after a silence.
        run_phase(sender, receivers, start=0, count=warm, **how)
    before = troupe.usage()
    start_ns, _, end_ns, reports = run_phase(sender, receivers, start=warm, count=count, **how)
    spent = spending(before, troupe.usage())
    seconds, deliveries = (end_ns - start_ns) / 1e9, count * len(reports)
    return Outcome(
        values={
            "per_s": deliveries / seconds,
            "mb_per_s": deliveries * size_bytes / seconds / 1e6,
            "per_cpu_s": deliveries / sum(spent["cpu_s"].values()),
        },
        wrong=sum(faults(report) for report in reports),
        detail={"seconds": seconds, **spent, "reports": reports},
    )


def knock_until_ready(publisher: Role, readers: Sequence[Role]) -> None:
    """Publish until every reader has received a message: then the publisher knows the interest of all of them."""
    deadline_s = time.monotonic() + READY_S_MAX
    waiting = list(readers)
    while waiting:
        publisher.tell("knock")
        publisher.hear(beside=readers)
        waiting = [reader for reader in waiting if reader.poll(KNOCK_S, [publisher]) is None]
        if time.monotonic() > deadline_s:
            raise MeasurementFailed(f"{len(waiting)} subscribers heard nothing")


class Phase(NamedTuple):
    """When the phase began, when the sender and when everybody was done, and the report of each subscription."""

    start_ns: int
    sent_ns: int
    end_ns: int
    reports: list[dict[str, int]]


def run_phase(
    sender: Role, receivers: Sequence[Role], *, start: int, count: int,
    answer_s_max: float = ANSWER_S_MAX, **how: Any,
) -> Phase:  # fmt: skip
    """Send `count` messages, from sequence `start` on, and return once all receivers have reported."""
    for receiver in receivers:
        receiver.tell("run", start=start, count=count, **how)
    sender.tell("run", start=start, count=count, **how)
    sent = sender.hear(answer_s_max, beside=receivers)
    arrived = [receiver.hear(answer_s_max) for receiver in receivers]
    reports = [report for answer in arrived for report in answer["reports"]]
    end_ns = max(answer["end_ns"] for answer in [sent, *arrived])
    return Phase(sent["start_ns"], sent["end_ns"], end_ns, reports)


def faults(report: Mapping[str, int]) -> int:
    """Return how many messages of a report did not arrive once, whole and in order."""
    return sum(report.get(kind, 0) for kind in ("lost", "duplicated", "reordered", "damaged"))


def spending(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, Any]:
    """Return the CPU seconds between `before` and `after`, and the peak memory, of each role."""
    return {
        "cpu_s": {name: round(after[name].cpu_s - before[name].cpu_s, 4) for name in after},
        "peak_rss_bytes": {name: usage.peak_rss_bytes for name, usage in after.items()},
    }
