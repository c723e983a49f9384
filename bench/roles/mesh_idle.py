"""An idle node. The order `wait` waits for members of a cluster."""

from __future__ import annotations

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async


async def run(stage: Stage) -> None:
    async with join(stage.settings) as node:
        stage.ready(endpoint=node.endpoints[0])
        async for order in stage.orders_async():
            await node.wait_members(order["cluster"], count=order["count"])
            stage.done()


if __name__ == "__main__":
    play_async(run)
