"""An open load ("Benchmarking Message Queue Latency"): requests sent when they are due, full distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.latency.generator import DRAIN_S_MAX, LATE_S_MAX
from bench.latency.workloads import Workload
from bench.plan import Case, Family, Outcome, Row, Scale
from bench.processes import Troupe
from bench.stream import spending
from bench.systems import REFERENCE
from bench.systems.system import System

from .serving import Serve, Serving, serving, start_s_max

WARM_S = 3.0
KEPT_MIN, LATE_NS_MAX = 0.99, 10_000_000
"""The least share of the schedule that must be kept, and the latest that requests may be sent at p99;
otherwise the load was not the one asked for.
"""
SHOWN = ("p50", "p99", "p99.9")
SAVE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a run of a workload takes: `seconds`, or longer until it has `samples`."""

    seconds: float
    warm_s: float
    samples: int

    def counts(self, workload: Workload, scale: Scale) -> tuple[int, int]:
        """Return the counts of measured requests and of warm-up requests before them."""
        counted = int(workload.rate_per_s * scale.seconds(self.seconds))
        warm = int(workload.rate_per_s * scale.seconds(self.warm_s))
        return max(counted, self.samples), warm


def case(
    system: System, workload: Workload, lasting: Lasting, directory: Path, serve: Serve = serving
) -> Case:
    """Make the case of one workload, on a server of its own.

    Args:
        directory: where the samples are written: response, uncorrected and delay, in ns.
    """
    lasting = replace(lasting, warm_s=max(lasting.warm_s, system.warm_s))

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        counted, warm = lasting.counts(workload, scale)
        roles = ["responder", "requester"] if system.replies else ["requester"]
        with serve(troupe, system, workload.connections, roles) as place:
            found = load(troupe, place, workload, counted, warm, directory)
        wrong = found["lost"] + found["duplicated"] + found["damaged"]
        shown = {
            f"{name}_us": found["response"][name] / 1e3
            for name in SHOWN
            if name in found["response"]
        }
        caveat = ""
        if not found["kept_the_schedule"]:
            caveat = (
                f"SCHEDULE NOT KEPT: {found['kept']:.0%}, {found['late_ns'] / 1e6:,.0f} ms late"
            )
        return Outcome(shown, wrong=wrong, detail=found, caveat=caveat)

    def lasting_s(scale: Scale) -> float:
        load_s = sum(lasting.counts(workload, scale)) / workload.rate_per_s
        return start_s_max(system) + load_s + LATE_S_MAX + DRAIN_S_MAX

    return Case(case_name(system.name, workload), run, lasting_s)


def load(
    troupe: Troupe, place: Serving, workload: Workload, count: int, warm: int, directory: Path
) -> dict[str, Any]:
    """Run the load once; return its quantiles in ns and whether the load was the one asked for."""
    # Imported here, as numpy may be missing where only `setup` or `throughput` is used.
    from .histograms import next_file, quantiles

    settings = {
        "size_bytes": workload.size_bytes, "connections": workload.connections,
        "rate_per_s": workload.rate_per_s, "count": count + warm, "warm_count": warm,
    }  # fmt: skip
    roles = [place.start("responder", **settings)] if place.system.replies else []
    requester = place.start("requester", **settings)
    before = troupe.usage()
    requester.tell("run")
    lasting_s = (count + warm) / workload.rate_per_s
    sent = requester.hear(2 * (lasting_s + LATE_S_MAX + DRAIN_S_MAX))["sent"]
    spent = spending(before, troupe.usage())
    file = next_file(directory, place.system.name, workload.name)
    requester.tell("save", file=str(file))
    answer = requester.hear(SAVE_S_MAX + lasting_s)
    place.end(requester, *roles)
    found = quantiles(file)
    late_ns = found["delay"].get("p99", found["delay"].get("max", 0))
    return {
        **found, **answer, **spent, "count": max(sent - warm, 0), "file": file.name,
        "late_ns": late_ns,
        "kept_the_schedule": as_asked(sent, answer, late_ns),
        "cpu_s_per_million": sum(spent["cpu_s"].values()) / sent * 1e6,
    }  # fmt: skip


def as_asked(sent: int, answer: Mapping[str, Any], late_ns: int) -> bool:
    """Return whether the load kept the schedule: all of it sent, at its rate, and each request about when due."""
    return sent == answer["asked"] and answer["kept"] >= KEPT_MIN and late_ns <= LATE_NS_MAX


def row_name(system: str, workload: str, quantile: str) -> str:
    return f"{system} {workload} {quantile}"


def case_name(system: str, workload: Workload) -> str:
    return f"{system}, {workload.name}"


def families(
    systems: Sequence[System], workloads: Sequence[Workload], lasting: Lasting, directory: Path
) -> list[Family]:
    """Return a family for each workload, so that results that are compared were measured within minutes."""
    systems = [system for system in systems if system.latency]
    reference = REFERENCE if REFERENCE in [system.name for system in systems] else None
    return [
        Family(
            name=workload.name,
            cases=[case(system, workload, lasting, directory) for system in systems],
            rows=[
                Row(
                    name=row_name(system.name, workload.name, shown), unit="us",
                    case=case_name(system.name, workload), value=f"{shown}_us",
                    reference=(case_name(reference, workload), f"{shown}_us") if reference else None,
                )
                for system in systems
                for shown in SHOWN
            ],
        )
        for workload in workloads
    ]  # fmt: skip
