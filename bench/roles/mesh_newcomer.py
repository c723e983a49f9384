"""Joins anew at every order `find`, and reports how long it took from then until the cluster had a usable member."""

from __future__ import annotations

import time

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async


async def run(stage: Stage) -> None:
    stage.ready()
    async for order in stage.orders_async():
        async with join(stage.settings) as node:
            began_s = time.perf_counter()
            await node.wait_members(order["cluster"])
            found_s = time.perf_counter() - began_s
        stage.done(found_ms=found_s * 1000)


if __name__ == "__main__":
    play_async(run)
