"""A member with a service that echoes requests, stores them, takes some time for them, or reads tunnels."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Any

import trio

import mesh
from bench.roles.mesh_node import join, until_silent
from bench.roles.stage import Stage, play_async
from bench.roles.synced_file import SyncedFile
from bench.sequence import Follower, Ring

Arrival = dict[str, Any]


def echo_service(settings: dict[str, Any]) -> mesh.Service:
    """Return a service that replies with the request's payload."""
    service = mesh.Service(settings["cluster"], concurrency=settings["concurrency"])

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    return service


def store_service(settings: dict[str, Any], file: SyncedFile) -> mesh.Service:
    """Return a service that replies with the request's payload once it is on disk.

    The write blocks the event loop: no write takes less time, but a real service must not do that.
    """
    service = mesh.Service(settings["cluster"], concurrency=settings["concurrency"])

    @service.request
    async def store(request: mesh.Request) -> bytes:
        file.write(request.payload)
        return request.payload

    return service


def worker_service(settings: dict[str, Any]) -> mesh.Service:
    """Return a service that takes as long as the request says, in us, times this member's slowness.

    It sleeps instead of computing: four members that compute would compete for two cores, which would distort the
    result.
    """
    service = mesh.Service(settings["cluster"], concurrency=settings["concurrency"])
    slowness: float = settings["slowness"]

    @service.request
    async def work(request: mesh.Request) -> bytes:
        await trio.sleep(int.from_bytes(request.payload, "little") / 1e6 * slowness)
        return b""

    return service


def tunnel_service(
    settings: dict[str, Any], arrivals: trio.MemorySendChannel[Arrival]
) -> mesh.Service:
    """Return a service that reads a tunnel to its end, checks every part, and sends back how many bytes there were."""
    service = mesh.Service(settings["cluster"])
    ring = Ring(settings["size_bytes"], settings["ring_count"])

    @service.tunnel
    async def read(tunnel: mesh.Tunnel) -> None:
        follower, received_bytes = Follower(ring), 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_silent, lambda: received_bytes, nursery.cancel_scope)
            async for part in tunnel:
                follower.take([part])
                received_bytes += len(part)
            end_ns = time.perf_counter_ns()
            nursery.cancel_scope.cancel()
        await tunnel.send(received_bytes.to_bytes(8, "little"))
        await tunnel.send_eof()
        await arrivals.send({"end_ns": end_ns, "follower": follower})

    return service


async def run(stage: Stage) -> None:
    settings = stage.settings
    sender, arrivals = trio.open_memory_channel[Arrival](8)
    async with AsyncExitStack() as stack:
        if settings["service"] == "tunnel":
            service = tunnel_service(settings, sender)
        elif settings["service"] == "worker":
            service = worker_service(settings)
        elif settings["service"] == "store":
            file = stack.enter_context(SyncedFile(settings["directory"]))
            service = store_service(settings, file)
        else:
            service = echo_service(settings)
        node = await stack.enter_async_context(join(settings, service))
        stage.ready(endpoint=node.endpoints[0])
        async for order in stage.orders_async():
            arrival = await arrivals.receive()
            report = arrival["follower"].report(order["count"])
            stage.done(end_ns=arrival["end_ns"], reports=[report])


if __name__ == "__main__":
    play_async(run)
