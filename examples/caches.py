"""A member of `caches`: is told to flush by broadcast, and prints every order of any region.

python -m examples.caches      settings come from MESH_* variables
"""

from __future__ import annotations

import sys

import trio

import mesh

service = mesh.Service("caches")


def say(text: str) -> None:
    sys.stdout.write(f"    cache: {text}\n")
    sys.stdout.flush()


@service.broadcast
async def flush(request: mesh.Request) -> None:
    """Forget everything."""
    say(f"told to {request.payload.decode()} by {request.caller}")


async def main() -> None:
    async with mesh.join(service) as node, node.subscribe("orders.>") as orders:
        say(f"up at {node.endpoints[0]}")
        async for message in orders:
            say(f"{message.topic} {message.payload.decode()}")


if __name__ == "__main__":
    trio.run(main)
