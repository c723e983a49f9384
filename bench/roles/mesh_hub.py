"""A node that publishes to all others and sends requests to their cluster."""

from __future__ import annotations

import time

import trio

import mesh
from bench.roles.mesh_caller import ask_in_turn
from bench.roles.mesh_node import KNOCK, join, topic_names
from bench.roles.mesh_publisher import publish
from bench.roles.stage import Order, Stage, play_async
from bench.sequence import Ring, report_of

WINDOW = 64
"""Requests outstanding."""


async def run(stage: Stage) -> None:
    """Orders: `wait` for members, `knock`, `request`, and `run`, which publishes."""
    settings = stage.settings
    ring = Ring(settings["size_bytes"])
    (topic,) = topic_names(1)
    async with join(settings) as node:
        stage.ready(endpoint=node.endpoints[0])
        async for order in stage.orders_async():
            if order["do"] == "wait":
                await node.wait_members(order["cluster"], count=order["count"])
                stage.done()
            elif order["do"] == "knock":
                await node.publish(topic, KNOCK)
                stage.done()
            elif order["do"] == "request":
                stage.done(**await ask(node, ring, order))
            else:
                start_ns = time.perf_counter_ns()
                await publish(node, topic, ring, order["start"], order["count"])
                stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


async def ask(node: mesh.Node, ring: Ring, order: Order) -> dict[str, int]:
    """Send requests, and report whether each reply was the request's own payload."""
    payloads = ring.slice(0, order["count"])
    replies, numbered = [b""] * len(payloads), iter(enumerate(payloads))
    async with trio.open_nursery() as nursery:
        for _ in range(WINDOW):
            nursery.start_soon(ask_in_turn, node, order["cluster"], numbered, replies)
    return report_of(ring, replies, order["count"])


if __name__ == "__main__":
    play_async(run)
