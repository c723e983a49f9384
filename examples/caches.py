"""A member of `caches`: takes broadcasts to flush, and prints every order of any region.

python -m examples.caches      settings come from MESH_* variables
"""

from __future__ import annotations

import sys
from collections import Counter

import trio

import mesh

service = mesh.Service("caches")
heard: Counter[str] = Counter()


def say(text: str) -> None:
    sys.stdout.write(f"    cache: {text}\n")
    sys.stdout.flush()


@service.broadcast
async def flush(request: mesh.Request) -> None:
    """Forget everything."""
    heard["flushes"] += 1
    say(f"told to {request.payload.decode()} by {request.caller}")


@service.request("heard")
async def count(request: mesh.Request) -> bytes:
    """Return how many orders it has printed, and how many flushes it has received."""
    return f"{heard['orders']} {heard['flushes']}".encode()


async def main() -> None:
    async with mesh.join(service) as node, node.subscribe("orders.>") as orders:
        say(f"up at {node.endpoints[0]}")
        async for message in orders:
            heard["orders"] += 1
            say(f"{message.topic} {message.payload.decode()}")


if __name__ == "__main__":
    trio.run(main)
