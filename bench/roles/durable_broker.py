"""A broker over a given directory, configured as `mesh-broker serve` does. Any order returns its vhost's statistics."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bench.roles.stage import Stage, play_async
from durable.broker.broker import Broker
from durable.broker.collecting import Collector
from durable.broker.statistics import statistics_of
from durable.protocol.listing import merge_listing

if TYPE_CHECKING:
    from durable.log.report import RecoveryReport
    from mesh.node import Node


async def run(stage: Stage) -> None:
    settings = stage.settings
    start_ns = time.perf_counter_ns()
    collector, cluster = Collector(own_process=True), settings["cluster"]
    broker = Broker(settings["data"], cluster=cluster, collector=collector)
    on_mesh = broker.on_mesh(
        listen=settings["listen"],
        seeds=settings["seeds"],
        zeroconf=False,
        network_secret=settings["network_secret"],
    )
    with collector.serving():
        async with broker, on_mesh as node:
            await serve(stage, broker, node, start_ns)


async def serve(stage: Stage, broker: Broker, node: Node, start_ns: int) -> None:
    opened_s = (time.perf_counter_ns() - start_ns) / 1e9
    running = broker.hosted("/")
    stage.ready(
        endpoint=node.endpoints[0],
        opened_s=opened_s,
        recovery=recovery(running.log.report),
    )
    async for _ in stage.orders_async():
        counted: dict[str, Any] = {}
        for some in statistics_of(running, lambda _name: True):
            merge_listing(counted, some)
        stage.done(
            lost=counted["lost"],
            ready=sum(queue["ready"] for queue in counted["queues"].values()),
            intake=counted["intake"],
            log=counted["log"],
            written_per_received=counted["written_per_received"],
        )


def recovery(report: RecoveryReport) -> dict[str, Any]:
    """Return the log's own report of how it was read: `seconds` covers reading and replaying together."""
    found = asdict(report)
    return {name: found[name] for name in ("records", "segments", "bytes_read", "seconds")}


if __name__ == "__main__":
    play_async(run)
