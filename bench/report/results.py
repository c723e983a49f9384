"""What a directory of results holds, as the page needs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.comparison import latency, throughput
from bench.latency.workloads import WORKLOADS, Workload
from bench.systems import SYSTEMS
from bench.systems.system import System

COMPARISONS = ("compare.json", "throughput.json", "latency.json")
SCALE = "scale.json"
Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Results:
    directory: Path
    sources: Sequence[Mapping[str, Any]]
    """What each file of a comparison says of itself: `machine` and `commit`. There may be none."""
    figures: Mapping[str, Mapping[str, Any]]
    """By name."""
    scale: Mapping[str, Any]
    """What its file holds: `machine`, `commit`, `figures` and `axes`; empty if there is none."""

    def asked(self, option: str) -> Mapping[str, Any]:
        """The options of the command that had this one; empty: none had."""
        found = (source["machine"]["asked"] for source in self.sources)
        return next((asked for asked in found if option in asked), {})

    @property
    def systems(self) -> list[System]:
        return list(SYSTEMS.values())

    def throughput(self, system: str, size_bytes: int, words: str) -> Mapping[str, Any] | None:
        return self.figures.get(throughput.row_name(system, size_bytes, words))

    @property
    def size_bytes(self) -> int:
        """Of the messages at full throttle."""
        sizes = [size for name in self.figures if (size := throughput.size_of(name)) is not None]
        return sizes[0] if sizes else throughput.SIZE_BYTES

    def loads(self, system: str, workload: str) -> Runs:
        """All rounds of a workload, with their quantiles in ns; none if it was not measured."""
        found = self.figures.get(latency.row_name(system, workload, "p50"))
        return found["runs"] if found else []

    @property
    def workloads(self) -> list[Workload]:
        return [
            one for one in WORKLOADS.values() if any(self.loads(name, one.name) for name in SYSTEMS)
        ]


def compared(directory: Path) -> list[Path]:
    """The files of a comparison that are there."""
    return [directory / name for name in COMPARISONS if (directory / name).exists()]


def read(directory: Path) -> Results:
    """Raises FileNotFoundError: nothing of a comparison is there, nor of how costs grow."""
    files, scale = compared(directory), directory / SCALE
    if not files and not scale.exists():
        raise FileNotFoundError(f"no {' or '.join((*COMPARISONS, SCALE))} in {directory}")
    contents = [json.loads(file.read_text()) for file in files]
    return Results(
        directory=directory,
        sources=contents,
        figures={figure["name"]: figure for content in contents for figure in content["figures"]},
        scale=json.loads(scale.read_text()) if scale.exists() else {},
    )


def quantile_us(runs: Runs, kind: str, name: str) -> float | None:
    """Over the rounds, in us: the median, or the largest of all. None where one lost anything."""
    values = [run[kind].get(name) for run in runs if not run["wrong"]]
    present = [value for value in values if value is not None]
    if not runs or len(present) < len(runs):
        return None
    return float(max(present) if name == "max" else median(present)) / 1e3


def losses(results: Results) -> Iterator[tuple[str, str, int]]:
    """System, workload, and how many requests of it had no right reply."""
    for system in results.systems:
        for workload in results.workloads:
            wrong = sum(run["wrong"] for run in results.loads(system.name, workload.name))
            if wrong:
                yield system.name, workload.name, wrong
