"""What an idle node costs: CPU, memory, and the memory of 200 links."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .figure import at_most
from .network import Network
from .plan import Case, Family, Outcome, Scale, row

if TYPE_CHECKING:
    from .processes import Troupe

SETTLE_S, WATCH_S, LINKED_S_MAX = 3.0, 10.0, 120.0
LINKS, SPOKES_PROCESSES = 200, 4
MB = 1e6

IDLE, MANY_LINKS = "idle node", f"{LINKS} links"


def idle(name: str) -> Case:
    """Measure one of two linked nodes that exchange no messages."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        watched = troupe.start("mesh_idle", network.node("bench-idle", seeds=[]))
        seeds = [watched.ready["endpoint"]]
        troupe.start("mesh_idle", network.node("bench-peer", seeds=seeds))
        watched.ask("wait", cluster="bench-peer", count=1)
        time.sleep(scale.seconds(SETTLE_S))
        before, began_s = watched.ask("usage"), time.monotonic()
        time.sleep(scale.seconds(WATCH_S))
        after, watched_s = watched.ask("usage"), time.monotonic() - began_s
        return Outcome(
            {
                "cpu_percent": (after["cpu_s"] - before["cpu_s"]) / watched_s * 100,
                "rss_mb": after["rss_bytes"] / MB,
            },
            detail={"seconds": watched_s, "peak_rss_bytes": after["peak_rss_bytes"]},
        )

    return Case(name, run)


def many_links(
    name: str, count: int = LINKS, *, peers_max: int = 1, settle_s: float = SETTLE_S
) -> Case:
    """Measure a hub's memory before and after `count` nodes link to it, and its CPU while all are idle.

    Each node links to the hub only (`peers_max`): linked to each other as well, 200 nodes would have about 20,000
    links.

    Args:
        settle_s: seconds to wait before each memory measurement, and for how long the CPU is measured.
    """

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        hub = troupe.start("mesh_idle", network.node("bench-hub", seeds=[]))
        time.sleep(scale.seconds(settle_s))
        before = hub.ask("usage")
        for share in shares(count):
            nodes = [
                network.node("bench-spoke", seeds=[hub.ready["endpoint"]], peers_max=peers_max)
                for _ in range(share)
            ]
            spokes = troupe.start("mesh_spokes", {"nodes": nodes, "hub": "bench-hub"}, wait=False)
            spokes.hear(LINKED_S_MAX)
        hub.ask("wait", cluster="bench-spoke", count=count)
        time.sleep(scale.seconds(settle_s))
        after, began_s = hub.ask("usage"), time.monotonic()
        time.sleep(scale.seconds(settle_s))
        rested, rested_s = hub.ask("usage"), time.monotonic() - began_s
        return Outcome(
            {
                "more_rss_mb": (after["rss_bytes"] - before["rss_bytes"]) / MB,
                "cpu_percent": (rested["cpu_s"] - after["cpu_s"]) / rested_s * 100,
            },
            detail={"links": count, "rss_bytes": after["rss_bytes"]},
        )

    return Case(name, run)


def shares(count: int) -> list[int]:
    """Return how many of `count` nodes each process runs, without processes that would run none."""
    processes = range(min(count, SPOKES_PROCESSES))
    return [len(range(process, count, SPOKES_PROCESSES)) for process in processes]


def family() -> list[Family]:
    cases = [idle(IDLE), many_links(MANY_LINKS)]
    rows = [
        row("idle node, CPU", "% of one core", IDLE, "cpu_percent", at_most(1.0)),
        row("idle node, RSS", "MB", IDLE, "rss_mb", at_most(45.0)),
        row("200 links, more RSS", "MB", MANY_LINKS, "more_rss_mb", at_most(60.0)),
    ]
    return [Family(name="idle", cases=cases, rows=rows, rounds_max=3)]
