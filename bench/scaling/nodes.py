"""The cost of a message with more and more nodes: published to all of them, or sent to their cluster as a request.

The hub has a process of its own, the other nodes share a few. For messages they are linked to the hub only: links to
each other would cost more at rest, which is measured separately, and nothing per message.
"""

from __future__ import annotations

from typing import Any

from bench import idle
from bench.network import Network
from bench.plan import Case, Outcome, Scale
from bench.processes import Role, Troupe
from bench.stream import WARM_PART, faults, knock_until_ready, measure_stream, spending

HUB, CLUSTER = "bench-hub", "bench-member"
SIZE_BYTES = 256
REQUESTS, DELIVERIES = 4_000, 64_000
CONCURRENCY = 256
LINKS_MAX = 512
SETTLE_S = 1.0
"""One second each, the interval of a heartbeat: short, as the axes have many steps."""
US = 1e6


def nodes(name: str, count: int) -> Case:
    """Make a case: `count` nodes at rest, all linked to each other; then messages, between other nodes and a hub."""
    at_rest = idle.many_links(name, count, peers_max=LINKS_MAX, settle_s=SETTLE_S)
    messages = messages_between(name, count)

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        rested = at_rest.run(troupe, scale)
        troupe.end_all()
        sent = messages.run(troupe, scale)
        return Outcome(
            {**rested.values, **sent.values}, wrong=sent.wrong,
            detail={**rested.detail, **sent.detail},
        )  # fmt: skip

    return Case(name, run)


def messages_between(name: str, count: int) -> Case:
    """Make a case of a hub and `count` other nodes: CPU of all processes per delivery and per request."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        network = Network()
        hub = troupe.start("mesh_hub", network.node(HUB, seeds=[], size_bytes=SIZE_BYTES))
        clusters = start_members(troupe, network, hub, count)
        published = measure_stream(
            troupe, hub, clusters, size_bytes=SIZE_BYTES,
            count=max(scale.count(DELIVERIES) // count, WARM_PART), iterator="batches",
        )  # fmt: skip
        requested = requests(troupe, hub, scale.count(REQUESTS))
        return Outcome(
            {"delivery_us": US / published.values["per_cpu_s"], **requested.values},
            wrong=published.wrong + requested.wrong,
            detail={"published": published.detail, "requested": requested.detail},
        )

    return Case(name, run)


def start_members(troupe: Troupe, network: Network, hub: Role, count: int) -> list[Role]:
    """Start `count` members; on return they are linked, subscribed and known to the hub."""
    clusters = []
    for share in idle.shares(count):
        members = [
            network.node(
                CLUSTER, seeds=[hub.ready["endpoint"]], peers_max=1, concurrency=CONCURRENCY
            )
            for _ in range(share)
        ]
        settings: dict[str, Any] = {"nodes": members, "size_bytes": SIZE_BYTES}
        clusters.append(troupe.start("mesh_cluster", settings, wait=False))
    for cluster in clusters:
        cluster.hear(idle.LINKED_S_MAX)
    hub.ask("wait", cluster=CLUSTER, count=count)
    for cluster in clusters:
        cluster.tell("knock")
    knock_until_ready(hub, clusters)
    for cluster in clusters:
        cluster.ask("drain")
    return clusters


def requests(troupe: Troupe, hub: Role, count: int) -> Outcome:
    """Measure requests, after a warm-up."""
    hub.ask("request", cluster=CLUSTER, count=max(count // WARM_PART, 1))
    before = troupe.usage()
    answer = hub.ask("request", cluster=CLUSTER, count=count)
    spent = spending(before, troupe.usage())
    cpu_us = sum(spent["cpu_s"].values()) * US
    return Outcome({"request_us": cpu_us / count}, wrong=faults(answer), detail=spent)
