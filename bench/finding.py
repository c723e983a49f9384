"""How long discovery takes: from when a newcomer has joined until it can send requests to a member that was there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .figure import at_most, percentile
from .network import Network
from .plan import Case, Family, Outcome, Scale, row

if TYPE_CHECKING:
    from .processes import Troupe

NEWCOMERS, SETTLE_S = 15, 1.5
ZEROCONF, SEED = "found through zeroconf", "found through one seed"


def finding(name: str, *, zeroconf: bool) -> Case:
    """Start one member, then newcomers one after the other, each of which looks for it."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        there = troupe.start("mesh_idle", network.node("bench-there", seeds=[], zeroconf=zeroconf))
        time.sleep(scale.seconds(SETTLE_S))
        seeds = [] if zeroconf else [there.ready["endpoint"]]
        node = network.node("bench-new", seeds=seeds, zeroconf=zeroconf)
        comer = troupe.start("mesh_newcomer", node)
        found = [
            comer.ask("find", cluster="bench-there")["found_ms"]
            for _ in range(scale.count(NEWCOMERS))
        ]
        values = {"p50_ms": percentile(found, 0.5), "most_ms": max(found)}
        return Outcome(values, detail={"found_ms": found})

    return Case(name, run)


def family() -> list[Family]:
    cases = [finding(ZEROCONF, zeroconf=True), finding(SEED, zeroconf=False)]
    rows = [
        row("found through zeroconf, slowest of 15", "ms", ZEROCONF, "most_ms", at_most(100.0)),
        row("found through zeroconf, p50", "ms", ZEROCONF, "p50_ms"),
        row("found through one seed, p50", "ms", SEED, "p50_ms"),
    ]
    return [Family(name="finding", cases=cases, rows=rows, rounds_max=3)]
