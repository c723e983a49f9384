"""The mesh's request-reply: addressed to a cluster, encrypted, a task for each request as users write it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

import trio

import mesh
from bench.loops import Loop

from .mesh_nodes import join
from .system import Command, Consumer, LoopName, Place, Producer, Promise, Received

CLUSTER = "responder"
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class MeshRequests:
    name: str = "mesh-requests"
    client: str = "mesh, node.request"
    promise: Promise = "memory"
    loop: LoopName = "trio"
    floor: bool = False
    replies: bool = True
    throughput: bool = False
    latency: bool = True

    def missing(self) -> str | None:
        return None

    def ports(self, connections: int) -> int:
        return 1

    def commands(self, place: Place) -> list[Command]:
        return []

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Caller:
        return Caller(place, replied)

    def responder(self, place: Place, loop: Loop) -> Member:
        return Member(place)

    def producer(self, place: Place, loop: Loop) -> Producer:
        raise NotImplementedError("requests are no stream of messages")

    def consumer(self, place: Place, loop: Loop, received: Received) -> Consumer:
        raise NotImplementedError("requests are no stream of messages")


class Caller:
    def __init__(self, place: Place, replied: Received) -> None:
        self._place, self._replied = place, replied
        self._stack = AsyncExitStack()

    async def setup(self) -> None:
        self._node = await self._stack.enter_async_context(join(self._place))
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        await self._node.wait_members(CLUSTER, count=1)

    async def request(self, payload: bytes) -> None:
        self._nursery.start_soon(self._ask, payload)

    async def _ask(self, payload: bytes) -> None:
        """One that fails is a reply that never comes."""
        try:
            reply = await self._node.request(CLUSTER, payload, timeout=TIMEOUT_S)
        except mesh.MeshError:
            return
        await self._replied([reply])

    async def teardown(self) -> None:
        self._nursery.cancel_scope.cancel()
        await self._stack.aclose()


class Member:
    def __init__(self, place: Place) -> None:
        self._place, self._stack = place, AsyncExitStack()

    async def setup(self) -> None:
        service = mesh.Service(CLUSTER, concurrency=100)

        @service.request
        async def echo(request: mesh.Request) -> bytes:
            return request.payload

        await self._stack.enter_async_context(join(self._place, service, first=True))

    async def teardown(self) -> None:
        await self._stack.aclose()
