"""Finds where the mesh loses to a system that makes the same promise, and gives the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from bench.comparison.latency import row_name
from bench.systems.system import System

from .results import Results, quantile_us

OURS = "mesh"
CLEAR = 1.2
"""The smallest ratio that counts as a difference: rounds of the same code differ by up to that."""
COMPARED = ("p50", "p99")
REASONS = {
    "encryption": (
        "Every link of the mesh is encrypted and authenticated, and this cannot be turned off; this "
        "peer's links are not. `zeromq-curve` shows what encryption costs without the mesh."
    ),
    "interpreter": (
        "Routing, credit and delivery of the mesh are Python; those of this peer are Rust or C, called once per message."
    ),
    "floor": (
        "A floor, not a client: its bytes are prepared once and counted by length. It shows what a client "
        "could reach that costs nothing itself."
    ),
    "requests": (
        "A request of the mesh is a task of its own in an event loop, with a deadline, a choice of "
        "member and a reply that has to find its task; for this peer it is one message there and one back, {how}. "
        "A request that is alone pays for a wake-up of trio's loop on both sides, which it shares with no other."
    ),
    "topics": (
        "A message that is alone costs the mesh a turn of trio's loop on both sides, with credit and routing in "
        "Python; at full throttle hundreds of messages share this cost."
    ),
    "durable": (
        "Both wait for the disk. The broker of the mesh is written in Python, and its links are encrypted."
    ),
    "each": (
        "Both wait for the disk. The mesh's client sends one message at a time, so no two messages share a turn of "
        "an event loop, neither in the client nor in the broker. The broker is written in Python, and its links are "
        "encrypted."
    ),
    "outstanding": "This peer's server syncs each message of many that are outstanding, without waiting for a client in between.",
    "nothing": (
        "A run that lost messages, died, or was given up because it fell behind its schedule has no figure "
        "to compare with this peer's; the tables below, or the text before them, tell which of these it was."
    ),
}
HOW = {
    "blocking": "which its client sends and receives in C or in a thread that does nothing else",
    "asyncio": "for each of which its client, also Python in an event loop, calls a function and makes no task",
}
"""By the event loop of the peer's client."""


@dataclass(frozen=True, slots=True)
class Loss:
    what: str
    peer: str
    ours: str
    """The mesh's best system; empty if none of them has a figure: they lost messages, died or were given up."""
    ratio: float
    """How many times better the peer is."""
    reasons: tuple[str, ...]


def reasons_of(peer: System, ours: str, what: str) -> tuple[str, ...]:
    if not ours:
        return (REASONS["nothing"],)
    if peer.floor:
        return (REASONS["floor"],)
    if peer.promise == "fsync each":
        more = (REASONS["outstanding"],) if peer.name.startswith("jetstream") else ()
        return (REASONS["each"], *more)
    if peer.promise != "memory":
        return (REASONS["durable"],)
    reasons = []
    if peer.name in ("zenoh", "zenoh-tcp"):
        reasons.append(REASONS["interpreter"])
    elif what.startswith("L"):
        told = REASONS["requests" if ours == "mesh-requests" else "topics"]
        reasons.append(told.format(how=HOW.get(peer.loop, "")))
    if not peer.name.endswith("-curve"):
        reasons.append(REASONS["encryption"])
    return tuple(reasons)


def losing(results: Results) -> Iterator[Loss]:
    """Yield each figure in which the mesh's best system is clearly worse than a peer with the same promise."""
    own = [one for one in results.systems if one.name.startswith(OURS)]
    for peer in results.systems:
        mine = [one for one in own if one.promise == peer.promise]
        if peer in own or not mine:
            continue
        for what in figures(results):
            theirs = value_of(results, peer.name, what)
            known = {
                value: one.name
                for one in mine
                if (value := value_of(results, one.name, what)) is not None
            }
            if theirs is None:
                continue
            if not known and any(was_run(results, one.name, what) for one in mine):
                yield Loss(what, peer.name, "", inf, reasons_of(peer, "", what))
            elif known and min(known) > CLEAR * theirs:
                ours = known[min(known)]
                yield Loss(what, peer.name, ours, min(known) / theirs, reasons_of(peer, ours, what))


def beside_peers(results: Results) -> bool:
    """Return whether any figure exists both for the mesh and for a peer with the same promise."""
    for what in figures(results):
        there = [one for one in results.systems if value_of(results, one.name, what) is not None]
        own = {one.promise for one in there if one.name.startswith(OURS)}
        if own & {one.promise for one in there if not one.name.startswith(OURS)}:
            return True
    return False


def figures(results: Results) -> list[str]:
    """Return the names of the compared figures; in all of them less is better."""
    return [
        "CPU",
        "time",
        *(f"{workload.name} {quantile}" for workload in results.workloads for quantile in COMPARED),
    ]


def was_run(results: Results, system: str, what: str) -> bool:
    """Return whether `system` was run for that figure; without a value if it lost messages, died or was given up."""
    if what.startswith("L"):
        found = results.figures.get(row_name(system, what.split()[0], "p50"))
    else:
        found = results.throughput(system, results.size_bytes, "received")
    return bool(found and (found["runs"] or found.get("failed")))


def value_of(results: Results, system: str, what: str) -> float | None:
    if what.startswith("CPU"):
        found = results.throughput(system, results.size_bytes, "CPU of all processes")
        return found["value"] if found else None
    if what.startswith("time"):
        found = results.throughput(system, results.size_bytes, "received")
        return 1e6 / found["value"] if found and found["value"] else None
    workload, quantile = what.split()
    runs = results.loads(system, workload)
    if any(run["sent"] < run["asked"] for run in runs):
        return None  # Given up: the requests that would have waited longest were not sent.
    return quantile_us(runs, "response", quantile)
