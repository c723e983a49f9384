"""Queues under load, and what their client knows for certain.

    load.publish ──> read ──> load.consume: acks, rejects, gives back
          │           └─ rejected, or given back too often ──> dead
          `───────> kept: what a fanout exchange gives to both, or a topic exchange to it alone;
                    nobody reads it until the end

There are two publishers, one of which has a name, and one consumer. In some parts each message has a routing key of its
own, and goes to one of the two queues.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random

import trio

import durable
from durable.client.connection import Connection
from durable.errors import BrokerLost
from tests.ledger import Ledger, number_of, payload
from tests.waiting import until

IN_BOTH, APART, ELSEWHERE = 10, 3, 3
"""One part in IN_BOTH goes to `kept` as well. Of the others, one in APART goes through an exchange message by
message, and then one message in ELSEWHERE goes to `kept` alone.
"""
REQUEUED, REJECTED, RETURNED = 7, 11, 13
"""One message in REQUEUED is given back the first time. One in REJECTED is rejected each time, one in
RETURNED is given back each time; both are to be found in `dead`.
"""
RETURNS = 3
"""The delivery limit: messages given back more often go to `dead`. A link that breaks while the broker lives
also counts as a return.
"""
ACKED, ROUNDS = 20, 300
"""ACKED: after so many acks the consumer waits until they are synced. They are so few that it falls behind,
so that a kill comes while it waits, with more deliveries at hand; ten times as many once it only has to catch
up. ROUNDS: how often it does so in one block, which lasts longer than the time between two kills.
"""


class QueueLoad:
    """The load. `parts` counts confirmed parts; `unsettled` counts settlements that were lost with a connection."""

    def __init__(self, connection: Connection, seed: int, returns: int = RETURNS) -> None:
        self.connection, self.random, self._returns = connection, Random(seed), returns
        self.read, self.kept, self.dead = Ledger(), Ledger(), Ledger()
        self.requeued: set[int] = set()
        self.parts = self.next = self.unsettled = 0
        self.done = self.published = False
        """`done`: nothing more is to be published. `published`: everything published is confirmed."""

    async def declare(self) -> None:
        await self.connection.declare_queue(
            "read",
            dead_letter_exchange="",
            dead_letter_routing_key="dead",
            delivery_limit=self._returns,
        )
        for name in ("kept", "dead"):
            await self.connection.declare_queue(name)
        await self.connection.declare_exchange("both", type="fanout")
        await self.connection.bind("both", "read")
        await self.connection.bind("both", "kept")
        await self.connection.declare_exchange("each", type="topic")
        await self.connection.bind("each", "read", "read.#")
        await self.connection.bind("each", "kept", "kept.#")

    def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.publish)
        nursery.start_soon(self.consume)

    async def publish(self) -> None:
        async with self.connection.publisher("till") as till:
            while not self.done:
                numbers = range(self.next, self.next + self.random.randrange(1, 60))
                self.next = numbers.stop
                payloads = [payload(number) for number in numbers]
                to_read = list(numbers)
                if self.random.randrange(IN_BOTH) == 0:
                    await self.connection.publish_many("both", "read", payloads)
                    self.kept.confirmed.update(numbers)
                elif self.random.randrange(APART) == 0:
                    to_read = [number for number in numbers if number % ELSEWHERE]
                    for number, one in zip(numbers, payloads, strict=True):
                        queue = "read" if number % ELSEWHERE else "kept"
                        await till.send("each", f"{queue}.{number}", one)
                    await till.flush()
                    self.kept.confirmed.update({*numbers} - {*to_read})
                else:
                    await till.publish("", "read", payloads)
                self.read.confirmed.update(to_read)
                self.dead.confirmed.update(filter(dies, to_read))
                self.parts += 1
        self.published = True

    async def consume(self) -> None:
        """Consume until cancelled, block after block, message by message or batch by batch.

        A block goes on when its connection is lost.
        """
        for block in count():
            with suppress(BrokerLost):
                async with self.connection.consume("read", prefetch=500) as deliveries:
                    for _ in range(ROUNDS):
                        try:
                            await self.take_some(deliveries, by_message=block % 2 == 0)
                        except BrokerLost as lost:
                            # The broker was killed first: what it did not settle comes again.
                            self.unsettled += lost.unsettled

    async def take_some(self, deliveries: durable.Deliveries, *, by_message: bool) -> None:
        acked: list[int] = []
        while len(acked) < (ACKED if not self.published else 10 * ACKED):
            for one in [await anext(deliveries)] if by_message else await deliveries.take():
                number = number_of(one.payload)
                self.read.delivered(number)
                if number % REJECTED == 0:
                    await one.reject()
                elif number % RETURNED == 0:
                    await one.nack()
                elif number % REQUEUED == 0 and number not in self.requeued:
                    self.requeued.add(number)
                    await one.nack()
                else:
                    await one.ack()
                    acked.append(number)
        await deliveries.synced()
        self.read.settled.update(acked)

    async def finish(self) -> None:
        """Stop publishing, and wait until all was delivered, for at most a minute; then cancel `consume`."""
        self.done = True
        with suppress(trio.TooSlowError):
            await until(lambda: self.published and not self.read.missing, 60)
        with trio.move_on_after(60):
            await drain(self.connection, "dead", self.dead)

    async def check(self) -> None:
        """Check everything, once nobody consumes any more."""
        with trio.move_on_after(60):
            await drain(self.connection, "kept", self.kept)
        assert self.published
        self.read.check()
        self.kept.check()
        kept = (await self.connection.statistics())["queues"]["kept"]
        assert kept["ready"] == len(self.kept.seen), "each is stored once"
        dead = self.dead.seen
        assert not self.dead.missing, "confirmed, and in neither place"
        assert all(map(dies, dead)), "nobody else is dead"
        rejected = [one for one in dead if one % REJECTED == 0]
        assert rejected == sorted(rejected), "dead in the order of publishing"
        assert not self.dead.redelivered, "of each dead letter there is one"
        assert self.requeued, "some were given back"
        assert len(self.kept.confirmed), "some went to both"


def dies(number: int) -> bool:
    return number % REJECTED == 0 or number % RETURNED == 0


async def drain(connection: Connection, queue: str, ledger: Ledger) -> None:
    async with connection.consume(queue, prefetch=0) as deliveries:
        while ledger.missing:
            for data in (await deliveries.take()).payloads:
                ledger.delivered(number_of(data))
