"""The tables of the page: a section for each promise or workload, a line for each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from bench.systems.system import Promise, System
from bench.table import number

from .charts import FIGURES, GROUPS, both_ways, cpu_of, curves
from .results import Results, Runs, losses, quantile_us

PROMISES: tuple[Promise, ...] = ("memory", "page cache", "batched fsync", "fsync each")
PROMISE_WORDS = {
    "memory": "Nothing is stored",
    "page cache": "Confirmed when it is in the page cache: a crash of the machine loses it",
    "batched fsync": "Confirmed when it is on the disk, one sync for many",
    "fsync each": "Confirmed when it is on the disk, a sync for each",
}


def throughput(results: Results) -> Iterator[str]:
    size = results.size_bytes
    yield "## Full throttle"
    yield ""
    yield (
        f"{size} B messages, one producer, one consumer, each in a process of its own; every payload compared with "
        "what was sent. CPU is of all processes, the server's too: it holds on a busy machine, rates do less so. "
        f"`mesh-bench throughput --size {size}`"
    )
    for promise in PROMISES:
        rows = [
            row
            for system in of_promise(results, promise)
            if (row := throughput_row(results, system))
        ]
        if not rows:
            continue
        yield ""
        yield f"### {PROMISE_WORDS[promise]}"
        yield ""
        yield "| system | client | CPU s / M msg | beside zeromq | received/s | sent/s | peak MB |"
        yield "|---|---|---|---|---|---|---|"
        yield from rows
    yield ""
    if cpu_of(results):
        yield f"![CPU of a million messages]({FIGURES}/throughput.svg)"
        yield ""


def throughput_row(results: Results, system: System) -> str | None:
    cpu = results.throughput(system.name, results.size_bytes, "CPU of all processes")
    if cpu is None or not cpu["runs"]:
        return None
    if cpu["value"] is None:
        wrong = sum(run["wrong"] for run in cpu["runs"])
        return f"| {label(system)} | {system.client} | lost or wrong: {wrong:,} | | | | |"
    others = [
        number(found["value"])
        if (found := results.throughput(system.name, results.size_bytes, words))
        else ""
        for words in ("received", "sent", "peak memory of all processes")
    ]
    values = [run["value"] for run in cpu["runs"]]
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    ratio = "" if cpu["ratio"] is None else f"{cpu['ratio']:.2f}x"
    cells = (label(system), system.client, number(cpu["value"]) + spread, ratio, *others)
    return f"| {' | '.join(cells)} |"


def latency(results: Results) -> Iterator[str]:
    yield "## Latency under an open load"
    yield ""
    yield (
        "Requests leave when they are due, whatever became of the earlier ones; the response counts from when a "
        "request was due. *Uncorrected* is what a bench reports that waits for each reply: only requests sent after the "
        "reply to the one before, from when they were sent. *Late* is by how much the load itself was, of which nobody "
        "but the machine is to blame while its own cores are free. A quantile is given only "
        "where 10 samples lie beyond it. Where the schedule was not kept, the load was less than it says. "
        "For what is stored, the reply is the confirm; for the others, the payload back from another process."
    )
    for workload in results.workloads:
        yield ""
        yield f"### {workload.name}: {workload.words}"
        yield ""
        yield f"`mesh-bench latency --workloads {workload.name}{how_long(results.machine['asked'])}`"
        yield ""
        yield "| system | promise | p50 us | p99 us | p99.9 us | max us | uncorrected p99 us | late p99 us | schedule kept | CPU s / M |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        for promise in PROMISES:
            for system in of_promise(results, promise):
                if runs := results.loads(system.name, workload.name):
                    yield latency_row(system, runs)
        for group in curves(results, workload.name):
            yield ""
            yield f"![{workload.words}, {GROUPS[group]}]({FIGURES}/{workload.name}-{group}.svg)"
    yield ""
    if both_ways(results):
        yield f"What waiting for each reply would have hidden: ![corrected and not]({FIGURES}/corrected.svg)"
        yield ""
    lost = [f"{system} {workload}: {count:,}" for system, workload, count in losses(results)]
    if lost:
        yield f"Requests without a right reply: {'; '.join(lost)}."
        yield ""


def latency_row(system: System, runs: Runs) -> str:
    wrong = sum(run["wrong"] for run in runs)
    kept = median(run["kept"] for run in runs)
    cpu = median(run["cpu_s_per_million"] for run in runs)
    if wrong:
        return f"| {label(system)} | {system.promise} | lost or wrong: {wrong:,} | | | | | | {kept:.0%} | {number(cpu)} |"
    shown = [number(quantile_us(runs, "response", name)) for name in ("p50", "p99", "p99.9", "max")]
    uncorrected = number(quantile_us(runs, "uncorrected", "p99"))
    late = number(quantile_us(runs, "delay", "p99"))
    told = "yes" if all(run["kept_the_schedule"] for run in runs) else f"NO, {kept:.0%}"
    cells = (label(system), system.promise, *shown, uncorrected, late, told, number(cpu))
    return f"| {' | '.join(cells)} |"


def how_long(asked: Mapping[str, Any]) -> str:
    return f" --seconds {asked['seconds']:g} --warm {asked['warm']:g}" if "seconds" in asked else ""


def label(system: System) -> str:
    return f"{system.name} (floor)" if system.floor else system.name


def of_promise(results: Results, promise: Promise) -> list[System]:
    """Ours first, then as they are registered."""
    found = [system for system in results.systems if system.promise == promise]
    return sorted(found, key=lambda system: not system.name.startswith("mesh"))
