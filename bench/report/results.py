"""Reads a directory of results for the page."""

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
    """The content of each file of a comparison, with its `machine` and `commit`; may be empty."""
    figures: Mapping[str, Mapping[str, Any]]
    """By name of the figure."""
    scale: Mapping[str, Any]
    """The content of scale.json: `machine`, `commit`, `figures` and `axes`; empty without that file."""

    def asked(self, option: str) -> Mapping[str, Any]:
        """Return the options of the first command that had `option`, or an empty mapping."""
        found = (source["machine"]["asked"] for source in self.sources)
        return next((asked for asked in found if option in asked), {})

    @property
    def systems(self) -> list[System]:
        return list(SYSTEMS.values())

    def throughput(self, system: str, size_bytes: int, words: str) -> Mapping[str, Any] | None:
        return self.figures.get(throughput.row_name(system, size_bytes, words))

    @property
    def size_bytes(self) -> int:
        """Size of the messages at full throttle."""
        sizes = [size for name in self.figures if (size := throughput.size_of(name)) is not None]
        return sizes[0] if sizes else throughput.SIZE_BYTES

    def loads(self, system: str, workload: str) -> Runs:
        """Return all rounds of a workload, with their quantiles in ns; empty if it was not measured."""
        found = self.figures.get(latency.row_name(system, workload, "p50"))
        return found["runs"] if found else []

    @property
    def workloads(self) -> list[Workload]:
        return [
            one for one in WORKLOADS.values() if any(self.loads(name, one.name) for name in SYSTEMS)
        ]


def compared(directory: Path) -> list[Path]:
    """Return the files of a comparison that exist."""
    return [directory / name for name in COMPARISONS if (directory / name).exists()]


def read(directory: Path) -> Results:
    """Read all results. Raises FileNotFoundError if there is neither a comparison nor a file of how costs grow."""
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
    """Return a quantile in us: the median of the rounds, of "max" the maximum; None if any round lost requests."""
    values = [run[kind].get(name) for run in runs if not run["wrong"]]
    present = [value for value in values if value is not None]
    if not runs or len(present) < len(runs):
        return None
    return float(max(present) if name == "max" else median(present)) / 1e3


def losses(results: Results) -> Iterator[tuple[str, str, int]]:
    """Yield system, workload, and how many of its requests had no correct reply."""
    for system in results.systems:
        for workload in results.workloads:
            wrong = sum(run["wrong"] for run in results.loads(system.name, workload.name))
            if wrong:
                yield system.name, workload.name, wrong
