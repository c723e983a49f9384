"""The durable tier: a queue on a broker process of the mesh; a confirm means that the message is on the disk.

strace counted 1 fdatasync for a stream of 1,000 messages, and 1,000 for 1,000 messages that were sent one at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import trio

import durable
import mesh
from bench.loops import Loop

from .mesh_nodes import Beside
from .stored import StoredSystem
from .system import HOST, UNREAD_BYTES_MAX, Command, Place, Producer, Received

QUEUE = "bench"
SECRET_FILE = "network.secret"
ACK_S_MAX = 60.0


class MeshDurable(StoredSystem):
    loop = "trio"

    def __init__(self, *, each: bool = False) -> None:
        how = "one publish at a time" if each else "a publisher with confirms"
        client = f"mesh, {how}, deliveries acked in batches"
        super().__init__("mesh-durable", client, "batched fsync", each=each)

    def commands(self, place: Place) -> list[Command]:
        secret = Path(place.directory) / SECRET_FILE
        secret.write_text(place.secret)
        secret.chmod(0o600)
        return [
            Command([
                sys.executable, "-m", "durable.cli", "serve",
                "--data", str(Path(place.directory) / "data"),
                "--listen", f"tcp://{HOST}:{place.ports[0]}",
                "--no-zeroconf", "--network-secret-file", str(secret),
            ])
        ]  # fmt: skip

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Confirmed:
        return Confirmed(place, replied)

    def producer(self, place: Place, loop: Loop) -> Producer:
        return OneByOne(place) if self.each else Publisher(place)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Taker:
        return Taker(place, received)


class _Client:
    """A node, a connection to the broker, and the queue."""

    limits: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, place: Place) -> None:
        self._place, self._beside, self._stack = place, Beside(), AsyncExitStack()

    async def setup(self) -> None:
        await self._beside.open(self._place)
        self._broker = durable.connect(self._beside.node)
        await self._broker.declare_queue(QUEUE, **self.limits)

    async def teardown(self) -> None:
        self._beside.nursery.cancel_scope.cancel()
        await self._stack.aclose()
        await self._beside.close()


class Confirmed(_Client):
    limits: ClassVar[Mapping[str, Any]] = {"max_length_bytes": UNREAD_BYTES_MAX}

    def __init__(self, place: Place, replied: Received) -> None:
        super().__init__(place)
        self._replied = replied

    async def request(self, payload: bytes) -> None:
        self._beside.nursery.start_soon(self._publish, payload)

    async def _publish(self, payload: bytes) -> None:
        """Publish and report the confirm; a failed publish counts as a confirm that never comes."""
        try:
            await self._broker.publish("", QUEUE, payload)
        except mesh.MeshError:
            return
        await self._replied([payload])


class Publisher(_Client):
    async def setup(self) -> None:
        await super().setup()
        self._publisher = await self._stack.enter_async_context(self._broker.publisher())

    async def publish(self, payloads: Sequence[bytes]) -> None:
        send = self._publisher.send
        for payload in payloads:
            await send("", QUEUE, payload)

    async def flush(self) -> None:
        await self._publisher.flush()


class OneByOne(_Client):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        publish = self._broker.publish
        for payload in payloads:
            await publish("", QUEUE, payload)

    async def flush(self) -> None:
        return


class Taker(_Client):
    def __init__(self, place: Place, received: Received) -> None:
        super().__init__(place)
        self._received = received
        self._taking, self._settled = trio.CancelScope(), trio.Event()

    async def setup(self) -> None:
        await super().setup()
        self._deliveries = await self._stack.enter_async_context(self._broker.consume(QUEUE))
        self._beside.nursery.start_soon(self._follow)

    async def _follow(self) -> None:
        while True:
            with self._taking:
                while True:
                    batch = await self._deliveries.take()
                    await self._received(batch.payloads)
                    await batch.ack()
            self._taking = trio.CancelScope()
            await self._deliveries.synced()
            self._settled.set()

    async def settle(self) -> None:
        """Wait until all acks are on the broker's disk; only the task that takes deliveries may call `synced`."""
        self._settled = trio.Event()
        self._taking.cancel()
        with trio.fail_after(ACK_S_MAX):
            await self._settled.wait()


SYSTEMS = (MeshDurable(), MeshDurable(each=True))
