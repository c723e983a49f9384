"""A member of `databases`: answers requests, and takes files through a tunnel.

python -m examples.databases      settings come from MESH_* variables
"""

from __future__ import annotations

import hashlib
import os
import sys

import trio

import mesh

service = mesh.Service("databases", concurrency=16)


@service.request
async def query(request: mesh.Request) -> bytes:
    """Reply with this process's id; a query takes two milliseconds."""
    await trio.sleep(0.002)
    return str(os.getpid()).encode()


@service.tunnel("store")
async def store(tunnel: mesh.Tunnel) -> None:
    """Receive a file part by part, and answer with its SHA-256."""
    digest = hashlib.sha256()
    async for part in tunnel:
        digest.update(part)
    await tunnel.send(digest.digest())


async def main() -> None:
    async with mesh.join(service) as node:
        sys.stdout.write(f"database {os.getpid()} is up at {node.endpoints[0]}\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)
