"""An open load ("Benchmarking Message Queue Latency"): requests when they are due, full distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.latency.distribution import Distribution
from bench.latency.workloads import Workload
from bench.plan import Case, Family, Outcome, Row, Scale
from bench.processes import Troupe
from bench.stream import spending
from bench.systems import REFERENCE
from bench.systems.system import System

from .serving import Serving, serving

WARM_S = 3.0
KEPT_MIN = 0.99
"""Of the schedule: below that the load was not what was asked for."""
SHOWN = ("p50", "p99", "p99.9")
KINDS = ("response", "service", "delay")
END_S = 60.0
"""Beside the run itself."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a run of a workload is: `seconds`, or until there are so many `samples`."""

    seconds: float
    warm_s: float
    samples: int

    def counts(self, workload: Workload, scale: Scale) -> tuple[int, int]:
        """Requests that count, and before them those that do not."""
        lasting_s = max(scale.seconds(self.seconds), self.samples / workload.rate_per_s)
        warm = int(workload.rate_per_s * scale.seconds(self.warm_s))
        return int(workload.rate_per_s * lasting_s), warm


def case(system: System, workloads: Sequence[Workload], lasting: Lasting, directory: Path) -> Case:
    """All workloads, one after the other, on one server.

    Args:
        directory: where each run's samples go, as rows of response, service and delay in ns.
    """

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        values: dict[str, float] = {}
        detail: dict[str, Any] = {}
        most = max(workload.connections for workload in workloads)
        with serving(troupe, system, most) as place:
            for workload in workloads:
                counted, warm = lasting.counts(workload, scale)
                file = next_file(directory, system.name, workload.name)
                found = load(troupe, place, workload, counted, warm, file)
                detail[workload.name] = found
                values |= shown(workload, found)
        return Outcome(values, detail=detail)

    return Case(case_name(system.name), run)


def shown(workload: Workload, found: Mapping[str, Any]) -> dict[str, float]:
    """What goes into the table; no quantile of a run that lost anything."""
    quantiles = {} if found["wrong"] else found["response"]
    return {
        f"{workload.name} wrong": found["wrong"],
        **{
            f"{workload.name} {name}_us": quantiles[name] / 1e3
            for name in SHOWN
            if name in quantiles
        },
    }


def load(
    troupe: Troupe, place: Serving, workload: Workload, count: int, warm: int, file: Path
) -> dict[str, Any]:
    """One run: its quantiles in ns, and whether the load was what was asked for."""
    settings = {
        "size_bytes": workload.size_bytes, "connections": workload.connections,
        "rate_per_s": workload.rate_per_s,
    }  # fmt: skip
    roles = [place.start("responder", **settings)] if place.system.replies else []
    requester = place.start("requester", **settings)
    roles.append(requester)
    before = troupe.usage()
    total = count + warm
    requester.tell("run", count=total, warm_count=warm, file=str(file))
    answer = requester.hear(total / workload.rate_per_s * 2 + END_S)
    spent = spending(before, troupe.usage())
    place.end(*reversed(roles))
    kept = answer["sent_per_s"] / workload.rate_per_s
    wrong = answer["lost"] + answer["duplicated"] + answer["damaged"]
    return {
        **{kind: Distribution.of(row).named() for kind, row in zip(KINDS, np.load(file), strict=True)},
        **answer, "count": count, "wrong": wrong, "file": file.name, "kept": kept,
        "kept_the_schedule": kept >= KEPT_MIN,
        "cpu_s_per_million": sum(spent["cpu_s"].values()) / total * 1e6, **spent,
    }  # fmt: skip


def next_file(directory: Path, system: str, workload: str) -> Path:
    """Of this run: one that is not there yet."""
    number = len(list(directory.glob(f"{system}-{workload}-r*.npy"))) + 1
    return directory / f"{system}-{workload}-r{number:02}.npy"


def row_name(system: str, workload: str, quantile: str) -> str:
    return f"{system} {workload} {quantile}"


def case_name(system: str) -> str:
    return f"{system}, latency"


def family(
    systems: Sequence[System], workloads: Sequence[Workload], lasting: Lasting, directory: Path
) -> Family:
    systems = [system for system in systems if system.latency]
    names = [system.name for system in systems]
    return Family(
        name="latency",
        cases=[case(system, workloads, lasting, directory) for system in systems],
        rows=[
            Row(
                name=row_name(name, workload.name, shown), unit="us", case=case_name(name),
                value=f"{workload.name} {shown}_us",
                reference=(case_name(REFERENCE), f"{workload.name} {shown}_us") if REFERENCE in names else None,
            )
            for workload in workloads
            for name in names
            for shown in SHOWN
        ],
    )  # fmt: skip
