"""SIGKILL of a broker under load, again and again, against the ledger of its client."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import count
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
REQUEUED, REJECTED = 7, 11
"""One message in so many is given back when it comes first; is rejected whenever it comes, and is to be
found among the dead."""
ACKED, ROUNDS = 20, 300
"""Messages that a consumer acks before it waits until they are synced: so few that it falls behind, and a
kill meets it as it waits, with more at hand. How often, in one block: for longer than between two kills."""
DELAY_S = 0.02
"""Up to so long after a confirm a broker is killed: the next parts are at any point of their way then."""


class Load:
    """Two publishers, one of which has a name, and one consumer of one queue; `parts` counts what has
    been confirmed, `unsettled` what was settled in vain."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection, self.random = connection, Random(seed)
        self.read, self.kept, self.dead = Ledger(), Ledger(), Ledger()
        self.requeued: set[int] = set()
        self.parts = self.next = self.unsettled = 0
        self.done = self.published = False
        """No more is to be published; nothing is on its way any more."""

    async def publish(self) -> None:
        async with self.connection.publisher("till") as till:
            while not self.done:
                numbers = range(self.next, self.next + self.random.randrange(1, 60))
                self.next = numbers.stop
                payloads = [payload(number) for number in numbers]
                if self.random.randrange(IN_BOTH) == 0:
                    await self.connection.publish_many("both", "read", payloads)
                    self.kept.confirmed.update(numbers)
                else:
                    await till.publish("", "read", payloads)
                self.read.confirmed.update(numbers)
                self.dead.confirmed.update(one for one in numbers if one % REJECTED == 0)
                self.parts += 1
        self.published = True

    async def consume(self) -> None:
        """Until cancelled: for a while in one block, however often its connection is lost, message by
        message or batch by batch, then in another."""
        for block in count():
            with suppress(BrokerLost):
                async with self.connection.consume("read", prefetch=500) as deliveries:
                    for _ in range(ROUNDS):
                        try:
                            await self.take_some(deliveries, by_message=block % 2 == 0)
                        except BrokerLost as lost:
                            # Killed before all was settled: what was not comes again.
                            self.unsettled += lost.unsettled

    async def take_some(self, deliveries: durable.Deliveries, *, by_message: bool) -> None:
        acked: list[int] = []
        while len(acked) < ACKED:
            for one in [await anext(deliveries)] if by_message else await deliveries.take():
                number = number_of(one.payload)
                self.read.delivered(number)
                if number % REJECTED == 0:
                    await one.reject()
                elif number % REQUEUED == 0 and number not in self.requeued:
                    self.requeued.add(number)
                    await one.nack()
                else:
                    await one.ack()
                    acked.append(number)
        await deliveries.synced()
        self.read.settled.update(acked)


async def drain(connection: Connection, queue: str, ledger: Ledger) -> None:
    async with connection.consume(queue, prefetch=0) as deliveries:
        while ledger.missing:
            for data in (await deliveries.take()).payloads:
                ledger.delivered(number_of(data))


class Restarting:
    """A broker that is killed and started again on its directory and port."""

    def __init__(self, data: Path) -> None:
        self._data = str(data)
        self._process = broker(self._data)
        self.listen: str = self._process.ready["endpoint"]

    async def kill_after(self, parts: int, delay_s: float, load: Load) -> None:
        """So long after so many more parts were confirmed."""
        wanted = load.parts + parts
        await until(lambda: load.parts >= wanted, 60)
        await trio.sleep(delay_s)
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
            await connection.declare_queue(
                "read", dead_letter_exchange="", dead_letter_routing_key="dead"
            )
            for name in ("kept", "dead"):
                await connection.declare_queue(name)
            await connection.declare_exchange("both", type="fanout")
            await connection.bind("both", "read")
            await connection.bind("both", "kept")
            load = Load(connection, seed=50)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.publish)
                nursery.start_soon(load.consume)
                for _ in range(KILLS):
                    delay_s = moments.uniform(0, DELAY_S)
                    await process.kill_after(moments.randrange(1, 40), delay_s, load)
                load.done = True
                with suppress(trio.TooSlowError):
                    await until(lambda: load.published and not load.read.missing, 60)
                with trio.move_on_after(60):
                    await drain(connection, "dead", load.dead)
                nursery.cancel_scope.cancel()
            await drain(connection, "kept", load.kept)
    segments = await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))
    assert load.published
    load.read.check()
    load.kept.check()
    load.dead.check()
    assert not load.dead.redelivered, "of each dead letter there is one"
    assert load.requeued, "some were given back"
    assert load.unsettled, "some were settled in vain"
    assert len(load.kept.confirmed) > KILLS, "there was a load"
    assert len(segments) < 100, "segments are given back"
