"""The plots of the page: which results each of them shows, and under which names."""

from __future__ import annotations

from pathlib import Path

from bench.systems import REFERENCE
from bench.systems.system import System

from .plots import bars, distributions, growth
from .results import Results, losses

HARDEST = "L4"
GROUPS = {
    "direct": "without a server",
    "direct-floors": "without a server, protocol bytes over a socket",
    "brokers": "through a server",
    "floors": "through a server, protocol bytes over a socket",
    "durable": "stored",
}
COMMON = (REFERENCE, "mesh-topics")
"""Drawn in every group of systems that store nothing, for comparison."""
CURVES_MAX = 9
"""Most curves of a plot: with more, they cannot be told apart."""


def cpu_of(results: Results) -> dict[str, float]:
    """Return the CPU seconds of a million messages at full throttle, by system."""
    words = "CPU of all processes"
    found = {
        one.name: results.throughput(one.name, results.size_bytes, words) for one in results.systems
    }
    return {name: row["value"] for name, row in found.items() if row and row["value"] is not None}


def group_of(system: System) -> str:
    """Return the group in which `system` is plotted: the curves of all systems in one plot could not be told apart."""
    if system.promise != "memory":
        return "durable"
    if not system.has_server:
        return "direct-floors" if system.floor else "direct"
    return "floors" if system.floor else "brokers"


def curves(results: Results, workload: str) -> dict[str, dict[str, Path]]:
    """Return a workload's histogram files, by group and system; groups that store nothing also have those of COMMON."""
    groups: dict[str, dict[str, Path]] = {group: {} for group in GROUPS}
    for system in results.systems:
        file = results.directory / f"{system.name}-{workload}.hgrm"
        if file.exists():
            groups[group_of(system)][system.name] = file
    common = {name: file for name, file in groups["direct"].items() if name in COMMON}
    return {
        group: files if group == "durable" else common | files
        for group, files in groups.items()
        if files
    }


def both_ways(results: Results) -> dict[str, Path]:
    """Return the histogram files of COMMON for the hardest workload to keep up with, corrected and uncorrected."""
    files = {
        f"{name}, {since}": results.directory / f"{prefix}{name}-{HARDEST}.hgrm"
        for name in COMMON
        for since, prefix in (("from when it was due", ""), ("one at a time", "uncorrected_"))
    }
    return {name: file for name, file in files.items() if file.exists()}


def draw(results: Results, to: Path) -> None:
    own = [system.name for system in results.systems if system.name.startswith("mesh")]
    if cpu := cpu_of(results):
        bars(cpu, "CPU seconds of all processes, a million messages", to / "throughput", own=own)
    lost = {(system, workload): count for system, workload, count in losses(results)}
    for workload in results.workloads:
        for group, found in curves(results, workload.name).items():
            files = {
                f"{name}, {lost[name, workload.name]:,} without a right reply"
                if (name, workload.name) in lost
                else name: file
                for name, file in found.items()
            }
            title = f"{workload.name}: {workload.words}, from when it was due; {GROUPS[group]}"
            distributions(files, title, to / f"{workload.name}-{group}")
    if files := both_ways(results):
        distributions(
            files, "from when it was due, and as who waits for each reply sees it", to / "corrected"
        )
    for axis in results.scale.get("axes", ()):
        growth(axis, to / f"scale-{axis['name']}")
