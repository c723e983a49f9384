"""SIGKILL of a broker under load, again and again, against the ledger of its client."""

from __future__ import annotations

from contextlib import closing, suppress
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
from tests.processes import SECRET
from tests.waiting import until

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
            # Killed before all was settled: what was not comes again.
            with suppress(BrokerLost):
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


class Restarting:
    """A broker that is killed and started again on its directory and port."""

    def __init__(self, data: Path) -> None:
        self._data = str(data)
        self._process = broker(self._data)
        self.listen: str = self._process.ready["endpoint"]

    async def kill_after(self, parts: int, load: Load) -> None:
        """Once so many more parts are confirmed."""
        wanted = load.parts + parts
        await until(lambda: load.parts >= wanted, 60)
        self.close()
        self._process = await trio.to_thread.run_sync(broker, self._data, self.listen)

    def close(self) -> None:
        self._process.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_broker_killed_50_times_loses_nothing_it_confirmed(tmp_path: Path) -> None:
    moments = Random(50)
    with closing(Restarting(tmp_path)) as process:
        async with mesh.join(
            "shop", network_secret=SECRET, listen="tcp://127.0.0.1:0", seeds=[process.listen],
            zeroconf=False,
        ) as node:  # fmt: skip
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
                    await process.kill_after(moments.randrange(1, 40), load)
                load.done = True
                with suppress(trio.TooSlowError):
                    await until(lambda: load.published and not load.read.missing, 60)
                nursery.cancel_scope.cancel()
            await drain(connection, load.kept)
    segments = await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))
    assert load.published
    load.read.check()
    load.kept.check()
    assert len(load.kept.confirmed) > KILLS, "there was a load"
    assert len(segments) < 100, "segments are given back"
