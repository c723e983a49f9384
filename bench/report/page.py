"""Writes a page such as docs/performance.md from a directory of results; parts without results stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.table import number

from . import marks
from .charts import draw
from .origin import hardware, not_measured
from .results import Results, compared, read
from .summary import summary
from .tables import latency, throughput

END = "<!-- Above: written by mesh-bench page. Below: by hand, and kept. -->"

NOT_SHOWN = (
    "Zenoh in its default configuration passes payloads of 3 KB and more (L3, L5) in shared memory, for which a socket is no floor; its floor here is that of Zenoh over TCP",
    "at 1 MB (L5) a floor joins and cuts payloads in Python, which a library need not do: there it is no lower bound",
    "the mesh has no mode that confirms from the page cache; systems that sync each message, except JetStream, are sent one at a time, and are not measured under an open load",
    "Redis streams are read without acks, the other systems that store with acks",
    "limits beyond which a message is dropped, a subscriber cut off or a request refused are raised for all, also for the "
    "mesh (requests that wait at a member: 100,000); all else is the default, or what `client` names: see bench/systems/",
)


def write(directory: Path, to: Path) -> None:
    """Write the page, and its plots into `figures/NAME/` beside it; the page's text below END is kept.

    If the directory has only the project's own figures, only the tables of marks are rewritten.

    Raises FileNotFoundError if there are no results.
    """
    measured = marks.read(directory)
    if not measured or compared(directory):
        _compare(directory, to)
    if measured:
        to.write_text(marks.replaced(to.read_text() if to.exists() else "", measured))


def _compare(directory: Path, to: Path) -> None:
    results = read(directory)
    figures = f"figures/{to.stem}"
    plots = to.parent / figures
    plots.mkdir(parents=True, exist_ok=True)
    draw(results, plots)
    kept = to.read_text().partition(END)[2].strip() if to.exists() else ""
    to.write_text("\n".join([*lines(results, figures), END, "", kept]).rstrip() + "\n")


def lines(results: Results, figures: str) -> Iterator[str]:
    """Yield the lines of the page above END.

    Args:
        figures: directory of the plots, relative to the page.
    """
    if results.sources:
        yield from heading(results)
        yield from summary(results)
        yield from where_measured(results)
        yield from throughput(results, figures)
        yield from latency(results, figures)
    yield from scale(results, figures)


def heading(results: Results) -> Iterator[str]:
    yield "# Performance, beside other systems"
    yield ""
    commits = dict.fromkeys(source["commit"][:7] for source in results.sources)
    yield (
        f"Written by `mesh-bench page` from what was measured at {', '.join(commits)} ([where and how](#where-and-how)); "
        "not by hand. One machine, loopback; one server and its clients share the cores; the mesh is encrypted, the others "
        "are not (except zeromq-curve). So this compares programs in Python, not servers. What the project demands of "
        "itself is told [elsewhere](performance.md#what-the-project-demands-of-itself)."
    )
    yield ""


def where_measured(results: Results) -> Iterator[str]:
    yield "## Where and how"
    yield ""
    yield " ".join(measured_on(source["machine"], source["commit"]) for source in results.sources)
    yield ""
    yield (
        "The systems take turns. Differences below a fifth mean nothing, nor do comparisons of figures from different "
        "pages, days or machines. How the bench measures: [bench/README.md](../bench/README.md)."
    )
    yield ""
    machines = [source["machine"] for source in results.sources]
    versions = {name: version for one in machines for name, version in one["versions"].items()}
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}."
    yield ""
    for note in (*dict.fromkeys(note for one in machines for note in one["notes"]), *NOT_SHOWN):
        yield f"- {note}"
    for one in machines:
        yield from not_measured(one)
    yield ""


def measured_on(machine: Mapping[str, Any], commit: str) -> str:
    return (
        f"Commit {named(commit, machine)}, "
        f"{machine['time']}, `{machine['command']}`. {hardware(machine)}, libzmq {machine['libzmq']}; "
        f"{asked_words(machine['asked'])}; "
        f"load {machine['load_average_before'][0]} before and {machine['load_average_after'][0]} after; "
        f"an fdatasync takes {number(machine.get('disk_sync_p50_us'))} us (p50) on {machine['temporary_directory']}; "
        f"10 M turns of an empty loop {machine['loop_10m_s']:.2f} s."
    )


def named(commit: str, machine: Mapping[str, Any]) -> str:
    return f"{commit[:7]}{' and what differs from it' * machine.get('dirty', False)}"


def asked_words(asked: Mapping[str, Any]) -> str:
    """Return in words what was asked of the runs: how long, how often."""
    words = [f"{asked['runs']} round{'s' * (asked['runs'] > 1)}"]
    if "seconds" in asked:
        words.append(f"{asked['seconds']:g} s of each load after {asked['warm']:g} s")
    if asked.get("samples", 1) > 1:
        words.append(f"at least {asked['samples']:,} requests of each")
    if "seconds_max" in asked:
        words.append(
            f"up to {asked['count']:,} messages or {asked['seconds_max']:g} s at full throttle"
        )
    if asked.get("quick"):
        words.append("**of which a part was run, to try the bench: no figures to quote**")
    return ", ".join(words)


def lost_in(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for figure in figures:
        if wrong := sum(run["wrong"] for run in figure["runs"]):
            yield f"- {figure['name']}: lost or wrong: {wrong:,}"


def scale(results: Results, figures: str) -> Iterator[str]:
    if not results.scale:
        return
    yield "## How the mesh's costs grow"
    yield ""
    machine, commit = results.scale["machine"], results.scale["commit"]
    yield f"`{machine['command']}`, {machine['time']}, commit {named(commit, machine)}; {hardware(machine)}."
    yield ""
    told = [*not_measured(machine), *lost_in(results.scale.get("figures", ()))]
    if told:
        yield from told
        yield ""
    for axis in results.scale["axes"]:
        yield f"![{axis['unit']}]({figures}/scale-{axis['name']}.svg)"
        yield ""
