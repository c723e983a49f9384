"""A node that runs in a process of its own for tests: serves every pattern, obeys commands from its stdin."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import trio
import trio.testing

import mesh

received: Counter[str] = Counter()


def make_service(cluster: str) -> mesh.Service:
    service = mesh.Service(cluster, concurrency=64)

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        received["requests"] += 1
        return request.payload

    @service.request("pid", idempotent=True)
    async def pid(request: mesh.Request) -> bytes:
        return str(os.getpid()).encode()

    @service.request("hang")
    async def hang(request: mesh.Request) -> bytes:
        received["hangs"] += 1
        try:
            await trio.sleep_forever()
        finally:
            received["cancelled"] += 1
        return b""

    @service.request("block")
    async def block(request: mesh.Request) -> bytes:
        time.sleep(float(request.payload))  # noqa: ASYNC251 (the event loop is to be blocked)
        return b"done"

    @service.broadcast
    async def note(request: mesh.Request) -> None:
        received["broadcasts"] += 1

    @service.tunnel
    async def digest(tunnel: mesh.Tunnel) -> None:
        received["tunnels"] += 1
        total = hashlib.sha256()
        async for part in tunnel:
            total.update(part)
        await tunnel.send(total.digest())

    @service.tunnel("slow")
    async def slow(tunnel: mesh.Tunnel) -> None:
        """Read a part whenever all other tasks wait."""
        async for part in tunnel:
            received["slow bytes"] += len(part)
            await trio.testing.wait_all_tasks_blocked()

    return service


async def subscribe(node: mesh.Node, pattern: str, options: dict[str, Any]) -> None:
    async with node.subscribe(pattern, **options) as subscription:
        async for message in subscription:
            received[pattern] += 1
            received[f"{pattern} lost"] += message.lost


async def pour(node: mesh.Node, cluster: str) -> None:
    async with node.open_tunnel(cluster) as tunnel:
        while True:
            await tunnel.send(bytes(10_000))


def memory_kb() -> dict[str, int]:
    """Return the memory of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {words[0][:-1]: int(words[1]) for line in lines if (words := line.split())[-1] == "kB"}


async def obey(node: mesh.Node, command: dict[str, Any], nursery: trio.Nursery) -> Any:
    what = command["do"]
    if what == "counts":
        return dict(received)
    if what == "subscribe":
        nursery.start_soon(subscribe, node, command["pattern"], command.get("options", {}))
        return "subscribed"
    if what == "pour":
        nursery.start_soon(pour, node, command["cluster"])
        return "pouring"
    if what == "members":
        return {one.node.hex(): one.state.value for one in node.members(command["cluster"])}
    if what == "memory_kb":
        return memory_kb()
    if what == "tunnels":
        return [
            {"sent": one.sent_bytes, "unread": one.unread_bytes}
            for one in node.statistics().tunnels
        ]
    if what == "subscriptions":
        return [{"dropped": one.dropped} for one in node.statistics().subscriptions]
    if what == "problems":
        return node.problems()
    raise ValueError(what)


async def main() -> None:
    arguments = json.loads(sys.argv[1])
    async with (
        mesh.join(make_service(arguments["cluster"]), **arguments["settings"]) as node,
        trio.open_nursery() as nursery,
    ):
        ready = {"node": node.id.hex(), "endpoint": node.endpoints[0], "pid": os.getpid()}
        print(json.dumps(ready), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            command = json.loads(line)
            if command["do"] == "leave":
                break
            print(json.dumps(await obey(node, command, nursery)), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
