"""Requests to four members of which one is four times slower, against choosing at random.

Open loop at 70 % of what the four can do together: more than the slow one's share of a random
choice, which is why random choice has no p99 here but a queue that grows.

Random choice needs no hook in the mesh: each member joins a cluster of its own, and the caller
draws the cluster. Everything else is the same: processes, links, schedule, demands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figure import Bound, percentile
from .network import Network
from .plan import Case, Family, Outcome, Scale, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from .processes import Troupe

MEMBERS = 4
CONCURRENCY = 4
SLOWNESS = 4.0
DEMAND_US_MEAN = 10_000.0
LOAD = 0.7
CAPACITY_PER_S = CONCURRENCY * 1e6 / DEMAND_US_MEAN * (MEMBERS - 1 + 1 / SLOWNESS)
QUEUE_REQUESTS = 100_000
"""No request is refused for want of room: random choice is to be seen with its whole queue."""
WARM_S, MEASURED_S = 2.0, 10.0
SEED = 20

MESH, RANDOM = "one of four members 4x slower, the mesh's choice", "the same, random choice"


def shared_cluster(member: int) -> str:
    """All members answer to one name: the mesh chooses among them."""
    return "bench-work"


def own_cluster(member: int) -> str:
    """Each member answers to its own name: the caller draws one, and that is who gets it."""
    return f"bench-work-{member}"


def balance(name: str, choose: Callable[[int], str], *, promised: bool) -> Case:
    """`choose` names member i's cluster, and with it who chooses. `promised`: all must answer."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        members = [
            troupe.start(
                "mesh_member",
                network.node(
                    choose(member),
                    seeds=[],
                    service="worker",
                    concurrency=CONCURRENCY,
                    slowness=SLOWNESS if member == MEMBERS - 1 else 1.0,
                    queue_requests=QUEUE_REQUESTS,
                ),
            )
            for member in range(MEMBERS)
        ]
        caller = troupe.start(
            "mesh_open_loop",
            network.node(
                "bench-caller",
                seeds=[member.ready["endpoint"] for member in members],
                targets=sorted({choose(member) for member in range(MEMBERS)}),
                members=MEMBERS,
                rate_per_s=CAPACITY_PER_S * LOAD,
                demand_us_mean=DEMAND_US_MEAN,
            ),
        )
        caller.ask("run", seconds=scale.seconds(WARM_S), seed=SEED)
        answer = caller.ask("run", seconds=scale.seconds(MEASURED_S), seed=SEED + 1)
        latencies_ns = answer["latencies_ns"]
        return Outcome(
            {
                "p50_ms": percentile(latencies_ns, 0.5) / 1e6,
                "p99_ms": percentile(latencies_ns, 0.99) / 1e6,
            },
            wrong=answer["failed"] if promised else 0,
            detail={
                "samples": len(latencies_ns),
                "failed": answer["failed"],
                "errors": answer["errors"],
            },
        )

    return Case(name, run)


def family() -> list[Family]:
    cases = [
        balance(MESH, shared_cluster, promised=True),
        balance(RANDOM, own_cluster, promised=False),
    ]
    name = "p99 with one of four members 4x slower, beside random choice"
    rows = [row(name, "ms", MESH, "p99_ms", Bound("ratio", "at most", 0.1), beside=RANDOM)]
    return [Family(name="balance", cases=cases, rows=rows)]
