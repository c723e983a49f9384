"""A program that only declares queues."""

from __future__ import annotations

import time

import durable
from bench.roles.durable_queues import declare_all
from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async


async def run(stage: Stage) -> None:
    async with join(stage.settings) as node:
        broker = durable.connect(node)
        await broker.statistics()
        stage.ready()
        async for order in stage.orders_async():
            start_ns = time.perf_counter_ns()
            await declare_all(broker, order["queues"])
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


if __name__ == "__main__":
    play_async(run)
