"""Full throttle ("Dissecting Message Queues"): a number of messages of one size, one producer, one consumer.

Rates count messages that arrived once and in order; a run that lost anything has no rate. CPU seconds are of all
processes, the server's included: they are comparable even on a machine that others use.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from bench.plan import Case, Family, Outcome, Row, Scale
from bench.processes import ANSWER_S_MAX, MeasurementFailed, Role, Troupe
from bench.roles.system_consumer import SILENCE_NS_MAX
from bench.stream import faults, run_phase, spending
from bench.systems import REFERENCE
from bench.systems.system import System

from .serving import Serve, Serving, serving, start_s_max

COUNT, SIZE_BYTES = 1_000_000, 1024
SIZE_BYTES_MIN = 16
WARM_PART = 0.3
"""Length of the warm-up as a share of `seconds_max`."""
INTRODUCE_S_MAX = 30.0
MILLION = 1e6
VALUES = {
    "cpu_s_per_million": ("CPU of all processes", "s/M msg"), "per_s": ("received", "msg/s"),
    "sent_per_s": ("sent", "msg/s"), "peak_mb": ("peak memory of all processes", "MB"),
}  # fmt: skip


def case(
    system: System, size_bytes: int, count: int, seconds_max: float, serve: Serve = serving
) -> Case:
    """Make the case of one system: `count` messages, or as many as take about `seconds_max` (`count` in the detail)."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        load_s, before_s = scale.seconds(seconds_max), warm_s(system, seconds_max, scale)
        with serve(troupe, system, 1, ["consumer", "producer"]) as place:
            return stream(troupe, place, size_bytes, scale.count(count), load_s, before_s)

    def lasting_s(scale: Scale) -> float:
        load_s = scale.seconds(seconds_max) + warm_s(system, seconds_max, scale)
        return start_s_max(system) + load_s + SILENCE_NS_MAX / 1e9

    return Case(case_name(system.name), run, lasting_s)


def warm_s(system: System, seconds_max: float, scale: Scale) -> float:
    return scale.seconds(max(seconds_max * WARM_PART, system.warm_s))


def stream(
    troupe: Troupe, place: Serving, size_bytes: int, count: int, seconds_max: float, before_s: float
) -> Outcome:
    """Stream from one producer to one consumer, after they know of each other and a warm-up."""
    consumer = place.start("consumer", size_bytes=size_bytes)
    producer = place.start("producer", size_bytes=size_bytes)
    introduce(producer, consumer)
    probe = place.system.probe_count
    start, per_s = warm_up(producer, consumer, probe, before_s)
    count = min(count, max(int(per_s * seconds_max), probe))
    before = troupe.usage()
    lasting_s = ANSWER_S_MAX + seconds_max  # It may be slower than the warm-up.
    run = run_phase(producer, [consumer], start=start, count=count, answer_s_max=lasting_s)
    spent = spending(before, troupe.usage())
    (report,) = run.reports
    seconds = (run.end_ns - run.start_ns) / 1e9
    place.end(producer, consumer)
    return Outcome(
        values={
            "per_s": count / seconds,
            "sent_per_s": count / (run.sent_ns - run.start_ns) * 1e9,
            "cpu_s_per_million": sum(spent["cpu_s"].values()) / count * MILLION,
            "peak_mb": sum(spent["peak_rss_bytes"].values()) / 1e6,
        },
        wrong=faults(report),
        detail={"count": count, "seconds": seconds, **spent, "reports": run.reports},
    )


def warm_up(producer: Role, consumer: Role, probe_count: int, seconds: float) -> tuple[int, float]:
    """Return how many messages were sent, and the rate of the second part of them, as servers start slowly.

    Args:
        probe_count: messages of the first part, which shows how many the system can send in `seconds`.
    """
    probe = run_phase(producer, [consumer], start=0, count=probe_count)
    count = max(int(probe_count / (probe.end_ns - probe.start_ns) * 1e9 * seconds), probe_count)
    lasting_s = ANSWER_S_MAX + seconds
    warm = run_phase(producer, [consumer], start=probe_count, count=count, answer_s_max=lasting_s)
    return probe_count + count, count / (warm.end_ns - warm.start_ns) * 1e9


def introduce(producer: Role, consumer: Role) -> None:
    """Send knocks until one arrives, and then give the other ones time to arrive."""
    # A limit in time and not in messages: on a machine that others use, both sides may be slow.
    deadline_s = time.monotonic() + INTRODUCE_S_MAX
    while time.monotonic() < deadline_s:
        producer.tell("knock")
        producer.hear(beside=[consumer])
        if has_heard(consumer, producer):
            has_heard(consumer, producer)
            return
    raise MeasurementFailed(f"nothing arrived within {INTRODUCE_S_MAX:.0f} s")


def has_heard(consumer: Role, producer: Role) -> bool:
    """Return whether any knock has reached the consumer so far."""
    consumer.tell("listen")
    return bool(consumer.hear(beside=[producer])["heard"])


def row_name(system: str, size_bytes: int, words: str) -> str:
    return f"{system} {size_bytes} B: {words}"


def size_of(name: str) -> int | None:
    """Return the size in the name of a row of this family, or None."""
    found = re.fullmatch(r"[\w-]+ (\d+) B: .*", name)
    return int(found[1]) if found else None


def case_name(system: str) -> str:
    return f"{system}, throughput"


def family(systems: Sequence[System], size_bytes: int, count: int, seconds_max: float) -> Family:
    """Return the family of all systems. CPU comes first: rates of the same code differ more from hour to hour."""
    measured = [system for system in systems if system.throughput]
    names = [system.name for system in measured]
    reference = REFERENCE if REFERENCE in names else None
    return Family(
        name="throughput",
        cases=[case(system, size_bytes, count, seconds_max) for system in measured],
        rows=[
            Row(
                name=row_name(name, size_bytes, words), unit=unit, case=case_name(name), value=value,
                reference=(case_name(reference), value) if reference else None,
            )
            for name in names
            for value, (words, unit) in VALUES.items()
        ],
    )  # fmt: skip
