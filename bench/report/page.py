"""docs/performance.md, from a directory of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.systems import REFERENCE
from bench.systems.system import Promise, System
from bench.table import number

from .losing import Loss, losing
from .plots import bars, distributions, growth
from .results import Results, Runs, losses, quantile_us, read

PROMISES: tuple[Promise, ...] = ("memory", "page cache", "batched fsync", "fsync each")
PROMISE_WORDS = {
    "memory": "Nothing is stored",
    "page cache": "Confirmed when it is in the page cache: a crash of the machine loses it",
    "batched fsync": "Confirmed when it is on the disk, one sync for many",
    "fsync each": "Confirmed when it is on the disk, a sync for each",
}
FIGURES = "figures"
HARDEST = "L4"
NOT_SHOWN = (
    "no floor: nng, Zenoh, JetStream, Redis streams, RabbitMQ with confirms, MQTT QoS 1",
    "nobody here syncs each message by itself; the mesh has no mode that confirms from the page cache",
    "NATS is Debian's: the newer one on PyPI was 1.5 times as fast over a bare socket",
    "Redis streams are read without acks, the other stored ones with acks",
)


def write(directory: Path, to: Path) -> None:
    """The page and its plots, in `figures/` beside it. Raises FileNotFoundError: no results."""
    results = read(directory)
    plots = to.parent / FIGURES
    plots.mkdir(parents=True, exist_ok=True)
    draw(results, plots)
    to.write_text("\n".join(lines(results)).rstrip() + "\n")


def lines(results: Results) -> Iterator[str]:
    yield from heading(results)
    yield from where_we_lose(list(losing(results)))
    yield from throughput(results)
    yield from latency(results)
    yield from scale(results)


def heading(results: Results) -> Iterator[str]:
    machine = results.machine
    yield "# Performance, beside other systems"
    yield ""
    yield (
        f"Written by `make bench` from what it measured; not by hand. Commit {results.commit[:7]}, "
        f"{machine['time']}, `{machine['command']}`. {machine['cpu']}, {machine['cores']} cores, "
        f"kernel {machine['kernel']}, {machine['python']}, libzmq {machine['libzmq']}; "
        f"{asked_words(machine['asked'])}; "
        f"load {machine['load_average_before'][0]} before and {machine['load_average_after'][0]} after; "
        f"an fdatasync takes {number(machine.get('disk_sync_p50_us'))} us (p50) on {machine['temporary_directory']}; "
        f"10 M turns of an empty loop {machine['loop_10m_s']:.2f} s."
    )
    yield ""
    yield (
        "One machine, loopback, one server and its clients on the same cores, the mesh with encryption, the others "
        "without (but for zeromq-curve): programs in Python are compared, not servers. Short runs of everything, in turns: differences "
        "below a fifth say nothing, and nor do figures of different pages, days or machines beside each other. What the project demands of itself is in "
        "[marks.md](marks.md); how the bench measures, in [bench/README.md](../bench/README.md)."
    )
    yield ""
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in machine['versions'].items())}."
    yield ""
    for note in (*machine["notes"], *NOT_SHOWN, *machine.get("failures", ())):
        yield f"- {note}"
    yield ""


def asked_words(asked: Mapping[str, Any]) -> str:
    """How long, how often: what the page's figures are made of."""
    words = [f"{asked['runs']} round{'s' * (asked['runs'] > 1)}"]
    if "seconds" in asked:
        words.append(f"{asked['seconds']:g} s of each load after {asked['warm']:g} s")
    if "seconds_max" in asked:
        words.append(
            f"up to {asked['count']:,} messages or {asked['seconds_max']:g} s at full throttle"
        )
    return ", ".join(words)


def where_we_lose(found: Sequence[Loss]) -> Iterator[str]:
    yield "## Where the mesh loses"
    yield ""
    if not found:
        yield "Nowhere by more than a fifth."
        yield ""
        return
    yield (
        "To a peer that promises the same, by more than a fifth; beside it the best of ours. CPU and time are those "
        "of a message at full throttle."
    )
    yield ""
    for reason in dict.fromkeys(loss.reason for loss in found):
        for peer in dict.fromkeys(loss.peer for loss in found if loss.reason == reason):
            told = [told_of(loss) for loss in found if (loss.reason, loss.peer) == (reason, peer)]
            yield f"- **{peer}**: {', '.join(told)}."
        yield ""
        yield f"  Why: {reason}"
        yield ""


def told_of(loss: Loss) -> str:
    if not loss.ours:
        return f"{loss.what}, where ours lost messages"
    return f"{loss.what} {loss.ratio:.1f}x ({loss.ours})"


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
        if curves(results, workload.name):
            yield ""
            yield f"![{workload.words}]({FIGURES}/{workload.name}.svg)"
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


def scale(results: Results) -> Iterator[str]:
    if not results.scale:
        return
    yield "## How the mesh's costs grow"
    yield ""
    yield "`mesh-bench scale`"
    yield ""
    for axis in results.scale:
        yield f"![{axis['unit']}]({FIGURES}/scale-{axis['name']}.svg)"
        yield ""


def how_long(asked: Mapping[str, Any]) -> str:
    return f" --seconds {asked['seconds']:g} --warm {asked['warm']:g}" if "seconds" in asked else ""


def label(system: System) -> str:
    return f"{system.name} (floor)" if system.floor else system.name


def of_promise(results: Results, promise: Promise) -> list[System]:
    """Ours first, then as they are registered."""
    found = [system for system in results.systems if system.promise == promise]
    return sorted(found, key=lambda system: not system.name.startswith("mesh"))


def cpu_of(results: Results) -> dict[str, float]:
    """Of a million messages at full throttle, by system."""
    words = "CPU of all processes"
    found = {
        one.name: results.throughput(one.name, results.size_bytes, words) for one in results.systems
    }
    return {name: row["value"] for name, row in found.items() if row and row["value"] is not None}


def curves(results: Results, workload: str) -> dict[str, Path]:
    """The histograms of a workload, by system."""
    files = {
        system.name: results.directory / f"{system.name}-{workload}.hgrm"
        for system in results.systems
    }
    return {name: file for name, file in files.items() if file.exists()}


def both_ways(results: Results) -> dict[str, Path]:
    """Of the workload that is hardest to keep up with, with and without what was late."""
    files = {
        f"{name}, {since}": results.directory / f"{prefix}{name}-{HARDEST}.hgrm"
        for name in (REFERENCE, "mesh-topics")
        for since, prefix in (("from when it was due", ""), ("one at a time", "uncorrected_"))
    }
    return {name: file for name, file in files.items() if file.exists()}


def draw(results: Results, to: Path) -> None:
    own = [system.name for system in results.systems if system.name.startswith("mesh")]
    if cpu := cpu_of(results):
        bars(cpu, "CPU seconds of all processes, a million messages", to / "throughput", own=own)
    for workload in results.workloads:
        if files := curves(results, workload.name):
            title = f"{workload.name}: {workload.words}, from when it was due"
            distributions(files, title, to / workload.name)
    if files := both_ways(results):
        distributions(
            files, "from when it was due, and as who waits for each reply sees it", to / "corrected"
        )
    for axis in results.scale:
        growth(axis, to / f"scale-{axis['name']}")
