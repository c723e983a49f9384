"""A broker over the directory it is given. `statistics`: of its vhost."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import durable
from bench.roles.stage import Stage, play_async
from durable.broker.statistics import statistics_of
from durable.protocol.listing import put_behind

if TYPE_CHECKING:
    from durable.log.report import RecoveryReport


async def run(stage: Stage) -> None:
    settings = stage.settings
    start_ns = time.perf_counter_ns()
    async with durable.serve(
        settings["data"],
        cluster=settings["cluster"],
        listen=settings["listen"],
        seeds=settings["seeds"],
        zeroconf=False,
        network_secret=settings["network_secret"],
    ) as broker:
        opened_s = (time.perf_counter_ns() - start_ns) / 1e9
        assert broker.node is not None
        hosted = broker.hosted("/")
        stage.ready(
            endpoint=broker.node.endpoints[0],
            opened_s=opened_s,
            recovery=recovery(hosted.log.report),
        )
        async for _ in stage.orders_async():
            counted: dict[str, Any] = {}
            for some in statistics_of(hosted, lambda _name: True):
                put_behind(counted, some)
            stage.done(
                lost=counted["lost"],
                ready=sum(queue["ready"] for queue in counted["queues"].values()),
                intake=counted["intake"],
                log=counted["log"],
                written_per_received=counted["written_per_received"],
            )


def recovery(report: RecoveryReport) -> dict[str, Any]:
    """What the log says of how it was read: reading and replaying, together."""
    found = asdict(report)
    return {name: found[name] for name in ("records", "segments", "bytes_read", "seconds")}


if __name__ == "__main__":
    play_async(run)
