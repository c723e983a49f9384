"""The tables of the page: a section for each promise or workload, a row for each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from bench.comparison.latency import row_name
from bench.latency.generator import DRAIN_S_MAX, QUIET_S_MAX
from bench.systems import REFERENCE
from bench.systems.system import Promise, System
from bench.table import number, spread

from .charts import GROUPS, both_ways, cpu_of, curves
from .results import Results, Runs, losses, quantile_us

PROMISES: tuple[Promise, ...] = ("memory", "page cache", "batched fsync", "fsync each")
PROMISE_WORDS = {
    "memory": "Nothing is stored",
    "page cache": "Confirmed when it is in the page cache: a crash of the machine loses it",
    "batched fsync": "Confirmed when it is on the disk, one sync for many",
    "fsync each": "Confirmed when it is on the disk, a sync for each",
}


THROUGHPUT_HEADINGS = (
    "system", "client", "CPU s / M msg", "producer + consumer + server", f"beside {REFERENCE}", "received/s",
    "sent/s", "peak MB",
)  # fmt: skip
ROLES = ("producer", "consumer", "server")
RATIOS = ("p50", "p99")
LATENCY_HEADINGS = (
    "system", "promise", "p50 us", "p99 us", "p99.9 us", "max us",
    *(f"{name} beside {REFERENCE}" for name in RATIOS),
    "uncorrected p99 us", "late p99 us", "schedule kept", "CPU s / M",
)  # fmt: skip


def throughput(results: Results, figures: str) -> Iterator[str]:
    size = results.size_bytes
    yield "## Full throttle"
    yield ""
    yield (
        f"{size} B messages, one producer, one consumer, each in a process of its own; every payload is compared with "
        "what was sent. CPU is that of all processes, including the server; it depends less on a busy machine than rates do. "
        f"`mesh-bench throughput --size {size}{options(results, 'count', 'seconds_max')}`"
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
        yield f"| {' | '.join(THROUGHPUT_HEADINGS)} |"
        yield "|---" * len(THROUGHPUT_HEADINGS) + "|"
        yield from rows
    yield ""
    if cpu_of(results):
        yield f"![CPU of a million messages]({figures}/throughput.svg)"
        yield ""


def throughput_row(results: Results, system: System) -> str | None:
    cpu = results.throughput(system.name, results.size_bytes, "CPU of all processes")
    if cpu is None or not cpu["runs"]:
        return None
    if cpu["value"] is None:
        wrong = sum(run["wrong"] for run in cpu["runs"])
        empty = " |" * (len(THROUGHPUT_HEADINGS) - 3)
        return f"| {label(system)} | {system.client} | lost or wrong: {wrong:,} |{empty}"
    others = [
        measured(found)
        if (found := results.throughput(system.name, results.size_bytes, words))
        else ""
        for words in ("received", "sent", "peak memory of all processes")
    ]
    cells = (
        label(system),
        system.client,
        measured(cpu),
        of_each(cpu["runs"]),
        beside(cpu),
        *others,
    )
    return f"| {' | '.join(cells)} |"


def of_each(runs: Runs) -> str:
    """Return the CPU seconds of each role per million messages, the median of the rounds."""
    spent: dict[str, list[float]] = {role: [] for role in ROLES}
    for run in runs:
        for name, cpu_s in run.get("cpu_s", {}).items():
            role = name.partition(".")[0].removeprefix("system_")
            spent[role].append(cpu_s / run["count"] * 1e6)
    return " + ".join(number(median(values)) for values in spent.values() if values)


def measured(figure: Mapping[str, Any]) -> str:
    """Return the median of the rounds, and their range."""
    return number(figure["value"]) + spread([run["value"] for run in figure["runs"]])


def beside(figure: Mapping[str, Any] | None) -> str:
    """Return the ratio to the reference, which is taken within each round, and its range."""
    if figure is None or figure.get("ratio") is None:
        return ""
    return f"{figure['ratio']:.2f}x{spread([run.get('ratio') for run in figure['runs']], '.2f')}"


def latency(results: Results, figures: str) -> Iterator[str]:
    yield "## Latency under an open load"
    yield ""
    yield (
        "Requests leave when they are due, whatever became of the earlier ones; the response time counts from when a "
        "request was due. *Uncorrected* is what a bench reports that waits for each reply: it counts only requests sent after "
        "the reply to the one before, from when they were sent. *Late* is how late the load itself was; only the machine "
        "is to blame for that while the load's own cores are free. A quantile is given only "
        "if 10 samples lie beyond it. Where the schedule was not kept, the load was less than stated. "
        "For what is stored, the reply is the confirm; for the others, the payload back from another process."
    )
    for workload in results.workloads:
        yield ""
        yield f"### {workload.name}: {workload.words}"
        yield ""
        yield f"`mesh-bench latency --workloads {workload.name}{options(results, 'seconds', 'warm', 'samples')}`"
        yield ""
        yield f"| {' | '.join(LATENCY_HEADINGS)} |"
        yield "|---" * len(LATENCY_HEADINGS) + "|"
        for promise in PROMISES:
            for system in of_promise(results, promise):
                if runs := results.loads(system.name, workload.name):
                    yield latency_row(results, system, workload.name, runs)
        for group in curves(results, workload.name):
            yield ""
            yield f"![{workload.words}, {GROUPS[group]}]({figures}/{workload.name}-{group}.svg)"
    yield ""
    if both_ways(results):
        yield f"What waiting for each reply would have hidden: ![corrected and not]({figures}/corrected.svg)"
        yield ""
    lost = [f"{system} {workload}: {count:,}" for system, workload, count in losses(results)]
    if lost:
        yield (
            f"Requests without a right reply {DRAIN_S_MAX:.0f} s after the last of them was sent, or when nothing "
            f"had come for {QUIET_S_MAX:.0f} s after that, lost or still waiting: {'; '.join(lost)}."
        )
        yield ""


def latency_row(results: Results, system: System, workload: str, runs: Runs) -> str:
    wrong = sum(run["wrong"] for run in runs)
    kept = median(run["kept"] for run in runs)
    cpu = median(run["cpu_s_per_million"] for run in runs)
    if wrong:
        empty = " |" * (len(LATENCY_HEADINGS) - 5)
        return f"| {label(system)} | {system.promise} | no right reply: {wrong:,} |{empty} {kept:.0%} | {number(cpu)} |"
    shown = [quantile(runs, name) for name in ("p50", "p99", "p99.9", "max")]
    if not any(shown):
        shown[0] = "not past the warm-up"
    ratios = [beside(results.figures.get(row_name(system.name, workload, name))) for name in RATIOS]
    uncorrected = number(quantile_us(runs, "uncorrected", "p99"))
    late = number(quantile_us(runs, "delay", "p99"))
    told = "yes" if all(run["kept_the_schedule"] for run in runs) else f"NO, {kept:.0%}"
    cells = (label(system), system.promise, *shown, *ratios, uncorrected, late, told, number(cpu))
    return f"| {' | '.join(cells)} |"


def quantile(runs: Runs, name: str) -> str:
    """Return a quantile in us, with its range: the median of the rounds, of "max" the maximum."""
    value = quantile_us(runs, "response", name)
    if value is None:
        return ""
    apart = [run["response"][name] / 1e3 for run in runs] if name != "max" else []
    return number(value) + spread(apart)


def options(results: Results, *names: str) -> str:
    """Return the options as given on the command line, for repeating a measurement; `samples` only if it was given."""
    asked = results.asked(names[0])
    given = [(name, asked[name]) for name in names if name in asked]
    words = [
        f" --{name.replace('_', '-')} {value:{'' if isinstance(value, int) else 'g'}}"
        for name, value in given
        if (name, value) != ("samples", 1)
    ]
    return "".join([*words, " --quick" if asked.get("quick") else ""])


def label(system: System) -> str:
    return f"{system.name} (floor)" if system.floor else system.name


def of_promise(results: Results, promise: Promise) -> list[System]:
    """Return the systems of a promise: the mesh's first, the others in the order of their registration."""
    found = [system for system in results.systems if system.promise == promise]
    return sorted(found, key=lambda system: not system.name.startswith("mesh"))
