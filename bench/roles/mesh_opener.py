"""A node that opens a tunnel and sends the ring's parts through it."""

from __future__ import annotations

import time

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    async with join(settings) as node:
        await node.wait_members(settings["target"], count=1)
        stage.ready()
        async for order in stage.orders_async():
            count: int = order["count"]
            async with node.open_tunnel(settings["target"]) as tunnel:
                payloads = ring.payloads
                start_ns = time.perf_counter_ns()
                for sequence in range(count):
                    await tunnel.send(payloads[sequence % ring.count])
                await tunnel.send_eof()
                received_bytes = 0
                async for part in tunnel:
                    received_bytes = int.from_bytes(part, "little")
            if received_bytes != count * ring.size_bytes:
                raise RuntimeError(f"sent {count} parts, {received_bytes} bytes arrived")
            stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


if __name__ == "__main__":
    play_async(run)
