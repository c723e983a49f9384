"""The page's first section: the mesh beside the best mode of each peer, and where it loses, to whom and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from bench.systems import SYSTEMS
from bench.systems.system import Promise, System
from bench.table import number

from .losing import CLEAR, OURS, Loss, beside_peers, figures, losing, value_of, was_run
from .results import Results
from .tables import PROMISE_WORDS, PROMISES, label

NONE = "none"
"""Shown for a system that was run and has no figure: it lost messages, died or was given up."""


@dataclass(frozen=True, slots=True)
class Best:
    """The mode of a peer with the lowest value, and that value."""

    system: System
    value: float


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of all systems with the same promise."""

    what: str
    best: Mapping[str, Best | None]
    """By peer, the mesh included, for those that were run; None for one that has no figure."""
    other: Best
    """The best value that is not the mesh's."""

    @property
    def ratio(self) -> float:
        """The mesh's value / the best other value; infinite if the mesh has no figure."""
        ours = self.best[OURS]
        return ours.value / self.other.value if ours else inf


def summary(results: Results) -> Iterator[str]:
    found = list(losing(results))
    yield "## Where the mesh loses, and where it wins"
    yield ""
    if not beside_peers(results) and not found:
        yield "Not measured: no figure of ours beside one of a peer that promises the same."
        yield ""
        return
    yield (
        f"For each peer, the client and mode that does best, named behind the figure; the best of all is in bold. A "
        f"difference below a fifth counts as even. `{NONE}`: it lost messages, died, or fell behind its schedule until it was given up."
        f"{single_round(results)}"
    )
    yield ""
    for promise in PROMISES:
        yield from standings(results, promise)
    yield from losses(found)


def single_round(results: Results) -> str:
    if results.asked("runs").get("runs", 1) > 1:
        return ""
    return " Of a single round, a p99 may be several times that of the next one."


def standings(results: Results, promise: Promise) -> Iterator[str]:
    """Yield the table of one promise; no lines if the mesh and no peer have a figure in common."""
    lines = list(compared(results, promise))
    if not lines:
        return
    peers = dict.fromkeys([OURS, *chain.from_iterable(line.best for line in lines)])
    yield f"### {PROMISE_WORDS[promise]}: {counted(lines)}"
    yield ""
    yield f"| | the mesh | {' | '.join(peers)} |"
    yield "|---" * (len(peers) + 2) + "|"
    for line in lines:
        cells = [cell(line, peer) for peer in peers]
        yield f"| {words_of(results, line.what)} | {verdict(line)} | {' | '.join(cells)} |"
    yield ""


def compared(results: Results, promise: Promise) -> Iterator[Line]:
    """Yield a line for each figure for which the mesh was run and a peer has a value."""
    systems = [one for one in results.systems if one.promise == promise and not one.floor]
    for what in figures(results):
        best: dict[str, Best | None] = {}
        for system in systems:
            value, peer = value_of(results, system.name, what), peer_of(system)
            before = best.get(peer)
            if value is not None and (before is None or value < before.value):
                best[peer] = Best(system, value)
            elif was_run(results, system.name, what):
                best.setdefault(peer, None)
        others = [one for peer, one in best.items() if one and peer != OURS]
        if OURS in best and others:
            yield Line(what, best, min(others, key=lambda one: one.value))


def peer_of(system: System) -> str:
    """Return the peer of a system: the names of a peer's systems are its name, then the client or mode."""
    return system.name.partition("-")[0]


def counted(lines: Sequence[Line]) -> str:
    worse = sum(line.ratio > CLEAR for line in lines)
    better = sum(line.ratio * CLEAR < 1 for line in lines)
    return f"loses {worse}, wins {better} of {len(lines)}"


def verdict(line: Line) -> str:
    ratio, other = line.ratio, line.other.system.name
    if ratio == inf:
        return f"loses to {other}"
    if ratio > CLEAR:
        return f"loses {ratio:.1f}x to {other}"
    if ratio * CLEAR < 1:
        return f"wins {1 / ratio:.1f}x over {other}"
    return f"even with {other}"


def cell(line: Line, peer: str) -> str:
    best = line.best.get(peer)
    if best is None:
        return NONE if peer in line.best else ""
    shown = number(1e6 / best.value if line.what == "time" else best.value)
    if best.value == min(one.value for one in line.best.values() if one):
        shown = f"**{shown}**"
    mode = best.system.name.removeprefix(peer).removeprefix("-")
    return f"{shown} {mode}".rstrip()


def words_of(results: Results, what: str) -> str:
    if what == "CPU":
        return f"{results.size_bytes} B at full throttle: CPU s / M msg"
    if what == "time":
        return "the same: messages/s"
    name, quantile = what.split()
    (workload,) = [one for one in results.workloads if one.name == name]
    return f"{name}, {workload.words}: {quantile}, us"


def losses(found: Sequence[Loss]) -> Iterator[str]:
    yield "### To whom it loses, and why"
    yield ""
    if not found:
        yield "To nobody by more than a fifth."
        yield ""
        return
    yield (
        "How many times better a peer with the same promise is than the best of the mesh's systems, if by more than a "
        "fifth. CPU and time are those of a message at full throttle; the numbers in the last column refer to the reasons below."
    )
    yield ""
    reasons = list(dict.fromkeys(chain.from_iterable(loss.reasons for loss in found)))
    for floor in (False, True):
        yield from table([one for one in found if SYSTEMS[one.peer].floor == floor], reasons)
    for place, reason in enumerate(reasons, 1):
        yield f"{place}. {reason}"
    yield ""


def table(found: Sequence[Loss], reasons: Sequence[str]) -> Iterator[str]:
    """Yield a table with a row for each peer and a column for each figure; the reasons are given by their numbers."""
    if not found:
        return
    whats = list(dict.fromkeys(loss.what for loss in found))
    whats.sort(key=lambda what: (what.startswith("L"), what))
    yield f"| to | {' | '.join(whats)} | why |"
    yield "|---" * (len(whats) + 2) + "|"
    for peer in dict.fromkeys(loss.peer for loss in found):
        mine = {loss.what: loss for loss in found if loss.peer == peer}
        numbers = sorted({reasons.index(one) + 1 for loss in mine.values() for one in loss.reasons})
        cells = [told(mine[what]) if what in mine else "" for what in whats]
        why = ", ".join(map(str, numbers))
        yield f"| {label(SYSTEMS[peer])} | {' | '.join(cells)} | {why} |"
    yield ""


def told(loss: Loss) -> str:
    return f"{loss.ratio:.1f}x" if loss.ours else f"ours: {NONE}"
