"""One publish at a time, beside its parts: a mesh round trip and one sync of the disk.

The parts are measured together, with a member that does nothing but write each request's payload to a file and sync it
before it replies; and apart, and added up. That sum is less than any program can take: a disk that is synced over and
over takes half as long per sync as one that was idle for a moment.

All are measured in turns of a few hundred samples, so that a change in the speed of the disk or the machine affects all
of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import raw
from bench.figure import Bound, percentile
from bench.plan import Case, Family, Outcome, Row, Scale
from bench.sequence import RING_COUNT
from bench.stream import faults

from .setting import Setting, queue_names, serving

if TYPE_CHECKING:
    from bench.processes import Role, Troupe

SIZE_BYTES = 256
COUNT, TURN_COUNT, TURN_COUNT_MIN = 2000, 200, 20
RECORD_BYTES = 512
"""Bytes that the probe writes: about the size of the record of one such message."""
RATIO_MAX = 1.5
SHARES = {"p50": 0.5, "p99": 0.99}

RAW_ONE, RAW_COUNT = "raw REQ-REP, 256 B, p50", 5000
ONE = "confirm one at a time, 256 B"


def one_at_a_time(name: str, count: int) -> Case:
    def run(troupe: Troupe, scale: Scale) -> Outcome:
        turn = max(scale.count(TURN_COUNT), TURN_COUNT_MIN)
        samples: dict[str, list[int]] = {
            "confirm": [], "synced": [], "round_trip": [], "sync": []
        }  # fmt: skip
        wrong = 0
        with serving(troupe) as setting:
            names = queue_names(1)
            publisher = setting.start(
                "durable_publisher", size_bytes=SIZE_BYTES, ring_count=RING_COUNT, queues=names
            )
            directory = setting.data
            caller = caller_of(setting, "bench-echo", service="echo")
            storing = caller_of(setting, "bench-store", service="store", directory=directory)
            probe = troupe.start("disk_probe", {"directory": directory, "size_bytes": RECORD_BYTES})
            for measure in range(-1, max(scale.count(count) // turn, 1)):
                order = {"start": (measure + 1) * turn, "count": turn}
                answers = {
                    "confirm": publisher.ask("one", **order),
                    "synced": storing.ask("run", count=turn),
                    "round_trip": caller.ask("run", count=turn),
                    "sync": probe.ask("run", count=turn),
                }
                wrong += faults(answers["round_trip"]) + faults(answers["synced"])
                if measure >= 0:  # The first turn is the warm-up.
                    for what, answer in answers.items():
                        samples[what] += answer["times_ns"]
        return Outcome(percentiles(samples), wrong=wrong, detail={"samples": len(samples["sync"])})

    return Case(name, run)


def caller_of(setting: Setting, cluster: str, **settings: Any) -> Role:
    """Start a member, and return a role that calls it with one request at a time."""
    member = setting.start_member("mesh_member", cluster, concurrency=1, **settings)
    return setting.start_member(
        "mesh_caller", f"{cluster}-caller", member.ready["endpoint"],
        size_bytes=SIZE_BYTES, window=1, target=cluster,
    )  # fmt: skip


def percentiles(samples: dict[str, list[int]]) -> dict[str, float]:
    """Return the percentiles in us; `floor` is that of a round trip plus that of a sync."""
    values = {
        f"{what}_{name}_us": percentile(times_ns, share) / 1e3
        for what, times_ns in samples.items()
        for name, share in SHARES.items()
    }
    floors = {
        f"floor_{name}_us": values[f"round_trip_{name}_us"] + values[f"sync_{name}_us"]
        for name in SHARES
    }
    return values | floors


def family() -> list[Family]:
    mark = Bound("ratio", "at most", RATIO_MAX)
    references = {
        "a request that is written and synced": "synced",
        "round trip + sync, measured apart": "floor",
    }
    rows = [
        Row(
            name=f"{ONE}, {name}, beside {words}", unit="us", case=ONE,
            value=f"confirm_{name}_us", reference=(ONE, f"{what}_{name}_us"), bounds=(mark,),
        )
        for words, what in references.items()
        for name in SHARES
    ]  # fmt: skip
    rows += [
        Row(name=f"{words}, p50", unit="us", case=ONE, value=f"{what}_p50_us")
        for what, words in (
            ("round_trip", "mesh round trip, 256 B"),
            ("sync", f"pwrite of {RECORD_BYTES} B and fdatasync"),
        )
    ]
    rows.append(Row(name=RAW_ONE, unit="us", case=RAW_ONE, value="p50_us"))
    cases = [
        one_at_a_time(ONE, COUNT),
        raw.request_reply(RAW_ONE, SIZE_BYTES, RAW_COUNT, window=1),
    ]
    return [Family(name="confirm", cases=cases, rows=rows)]
