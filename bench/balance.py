"""Requests to four members, one of them four times slower: the mesh's choice beside a random choice.

Open loop at 70 % of the capacity of all four. A quarter of that rate is more than the slow member can process, so with
a random choice its queue grows as long as the load lasts, and so does p99.

Random choice needs no hook in the mesh: each member joins a cluster of its own, and the caller draws the cluster.
Processes, links, schedule and service times are the same in both cases.
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
"""High enough that no member refuses a request: random choice must show its whole queue."""
WARM_S, MEASURED_S = 2.0, 10.0
SEED = 20

MESH, RANDOM = "one of four members 4x slower, the mesh's choice", "the same, random choice"


def shared_cluster(member: int) -> str:
    """Return the same cluster for every member: the mesh chooses among the members."""
    return "bench-work"


def own_cluster(member: int) -> str:
    """Return a cluster for this member alone: the caller draws a cluster, and with it the member."""
    return f"bench-work-{member}"


def balance(name: str, choose: Callable[[int], str], *, promised: bool) -> Case:
    """Make a case.

    Args:
        choose: returns the cluster of member i, and so decides whether the mesh or the caller chooses the member.
        promised: whether failed requests count as wrong.
    """

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
