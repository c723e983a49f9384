"""A node that sends requests: one at a time, or from many tasks that each wait for their reply."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import mesh

TIMEOUT_S = 30.0


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"])
    window: int = settings["window"]
    async with join(settings) as node:
        await node.wait_members(settings["target"], count=1)
        stage.ready()
        async for order in stage.orders_async():
            payloads = ring.slice(0, order["count"])
            replies, times_ns = [b""] * len(payloads), list[int]()
            numbered = iter(enumerate(payloads))
            start_ns = time.perf_counter_ns()
            if window == 1:
                await one_at_a_time(node, settings["target"], numbered, replies, times_ns)
            else:
                async with trio.open_nursery() as nursery:
                    for _ in range(window):
                        nursery.start_soon(ask_in_turn, node, settings["target"], numbered, replies)
            end_ns = time.perf_counter_ns()
            report = report_of(ring, replies, order["count"])
            stage.done(start_ns=start_ns, end_ns=end_ns, times_ns=times_ns, **report)


async def one_at_a_time(
    node: mesh.Node,
    target: str,
    numbered: Iterator[tuple[int, bytes]],
    replies: list[bytes],
    times_ns: list[int],
) -> None:
    clock = time.perf_counter_ns
    for number, payload in numbered:
        sent_ns = clock()
        replies[number] = await node.request(target, payload, timeout=TIMEOUT_S)
        times_ns.append(clock() - sent_ns)


async def ask_in_turn(
    node: mesh.Node,
    target: str,
    numbered: Iterator[tuple[int, bytes]],
    replies: list[bytes],
) -> None:
    """Run one of the tasks that share the payloads: send the next one when the reply to the last has come."""
    for number, payload in numbered:
        replies[number] = await node.request(target, payload, timeout=TIMEOUT_S)


if __name__ == "__main__":
    play_async(run)
