"""The mesh's request-reply: addressed to a cluster, encrypted, with a task for each request as users write it."""

from __future__ import annotations

import mesh
from bench.loops import Loop

from .mesh_nodes import Beside
from .system import Place, Received, System

CLUSTER = "responder"
TIMEOUT_S = 60.0
QUEUE = 100_000
"""The most requests that wait at the member. By default it refuses more than a few hundred; no other system
here refuses any, and a run with a refusal has no rate.
"""


class MeshRequests(System):
    name = "mesh-requests"
    client = "mesh, node.request"
    loop = "trio"
    throughput = False

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Caller:
        return Caller(place, replied)

    def responder(self, place: Place, loop: Loop) -> Member:
        return Member(place)


class Caller:
    def __init__(self, place: Place, replied: Received) -> None:
        self._place, self._replied = place, replied
        self._beside = Beside()

    async def setup(self) -> None:
        await self._beside.open(self._place)
        self._node = self._beside.node
        await self._node.wait_members(CLUSTER, count=1)

    async def request(self, payload: bytes) -> None:
        self._beside.nursery.start_soon(self._ask, payload)

    async def _ask(self, payload: bytes) -> None:
        """Send a request and report its reply; a failed request counts as a reply that never comes."""
        try:
            reply = await self._node.request(CLUSTER, payload, timeout=TIMEOUT_S)
        except mesh.MeshError:
            return
        await self._replied([reply])

    async def teardown(self) -> None:
        await self._beside.close()


class Member:
    def __init__(self, place: Place) -> None:
        self._place, self._beside = place, Beside()

    async def setup(self) -> None:
        service = mesh.Service(CLUSTER, concurrency=100)

        @service.request
        async def echo(request: mesh.Request) -> bytes:
            return request.payload

        await self._beside.open(self._place, service, first=True, queue_requests=QUEUE)

    async def teardown(self) -> None:
        await self._beside.close()


SYSTEMS = (MeshRequests(),)
