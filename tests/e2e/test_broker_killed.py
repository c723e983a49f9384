"""SIGKILL of a broker under load, again and again, against the ledger of its client."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import trio

import durable
import mesh
from durable.client.connection import Connection
from durable.errors import BrokerLost
from tests.broker import broker
from tests.ledger import Ledger, number_of, payload
from tests.processes import SECRET, Process

KILLS = 50
IN_BOTH = 10
"""One part in so many is also routed to the queue that nobody reads until the end."""


class Load:
    """One publisher and one consumer of one queue; `parts` counts what has been confirmed."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection, self.random = connection, Random(seed)
        self.read, self.kept = Ledger(), Ledger()
        self.parts = self.next = 0
        self.done = self.published = False
        """No more is to be published; nothing is on its way any more."""

    async def publish(self) -> None:
        while not self.done:
            numbers = range(self.next, self.next + self.random.randrange(1, 60))
            self.next = numbers.stop
            both = self.random.randrange(IN_BOTH) == 0
            await self.connection.publish_many(
                "both" if both else "", "read", [payload(number) for number in numbers]
            )
            self.read.confirmed.update(numbers)
            if both:
                self.kept.confirmed.update(numbers)
            self.parts += 1
        self.published = True

    async def consume(self) -> None:
        """Until cancelled."""
        while True:
            # Killed before all was settled, or while we were calling: what was not settled comes again.
            with suppress(BrokerLost, mesh.RequestError, mesh.TunnelBroken):
                async with self.connection.consume("read", prefetch=500) as deliveries:
                    while True:
                        await self.take_some(deliveries)

    async def take_some(self, deliveries: durable.Deliveries) -> None:
        taken: list[int] = []
        while len(taken) < 300:
            batch = await deliveries.take()
            numbers = [number_of(data) for data in batch.payloads]
            for number in numbers:
                self.read.delivered(number)
            taken += numbers
            await batch.ack()
        await deliveries.synced()
        self.read.settled.update(taken)


async def drain(connection: Connection, ledger: Ledger) -> None:
    async with connection.consume("kept", prefetch=0) as deliveries:
        while ledger.missing:
            for data in (await deliveries.take()).payloads:
                ledger.delivered(number_of(data))


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_broker_killed_50_times_loses_nothing_it_confirmed(tmp_path: Path) -> None:
    data = str(tmp_path)
    process = broker(data)
    listen = process.ready["endpoint"]
    moments = Random(50)
    async with mesh.join(
        "shop", network_secret=SECRET, listen="tcp://127.0.0.1:0", seeds=[listen], zeroconf=False
    ) as node:
        connection = durable.connect(node, timeout=60)
        for name in ("read", "kept"):
            await connection.declare_queue(name)
        await connection.declare_exchange("both", type="fanout")
        await connection.bind("both", "read")
        await connection.bind("both", "kept")
        load = Load(connection, seed=50)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.publish)
            nursery.start_soon(load.consume)
            for _ in range(KILLS):
                process = await _kill_at(process, load, moments.randrange(1, 40), data, listen)
            load.done = True
            with trio.move_on_after(60):
                while not load.published or load.read.missing:
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        await drain(connection, load.kept)
    process.close()
    segments = await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))
    assert load.published
    load.read.check()
    load.kept.check()
    assert len(load.kept.confirmed) > KILLS, "there was a load"
    assert len(segments) < 100, "segments are given back"


async def _kill_at(process: Process, load: Load, parts: int, data: str, listen: str) -> Process:
    """Once so many more parts are confirmed; the next broker on the same directory."""
    wanted = load.parts + parts
    with trio.fail_after(60):
        while load.parts < wanted:
            await trio.sleep(0.001)
    process.close()
    return await trio.to_thread.run_sync(broker, data, listen)
