"""SIGKILL of a broker under load, again and again, against the ledgers of its client: of queues, of their
dead letters, and of streams with the cursors of their readers (tests/stream_load.py)."""

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
from tests.broker import Broker
from tests.ledger import Ledger, number_of, payload
from tests.processes import SECRET
from tests.stream_load import StreamLoad
from tests.waiting import until

KILLS, SEED = 50, 50
IN_BOTH = 10
"""One part in so many is also routed to the queue that nobody reads until the end."""
REQUEUED, REJECTED, RETURNED = 7, 11, 13
"""One message in so many is given back when it comes first; is rejected whenever it comes, or given back,
and is to be found among the dead."""
RETURNS = 3
"""After more than so many. Messages whose link breaks while the broker lives come back as well, seldom so often."""
ACKED, ROUNDS = 20, 300
"""Messages that a consumer acks before it waits until they are synced: so few that it falls behind, and a
kill meets it as it waits, with more at hand; more, when it has only to catch up. How often, in one block: for
longer than between two kills."""
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
                self.dead.confirmed.update(filter(dies, numbers))
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


def dies(number: int) -> bool:
    return number % REJECTED == 0 or number % RETURNED == 0


async def drain(connection: Connection, queue: str, ledger: Ledger) -> None:
    async with connection.consume(queue, prefetch=0) as deliveries:
        while ledger.missing:
            for data in (await deliveries.take()).payloads:
                ledger.delivered(number_of(data))


class Killing:
    """Of one broker under two loads."""

    def __init__(self, broker: Broker, node: mesh.Node, load: Load, streams: StreamLoad) -> None:
        self._broker, self._node = broker, node
        self._load, self._streams = load, streams
        self._moments = Random(SEED)

    async def kill(self, number: int) -> None:
        """When more has been confirmed, at a random moment, or right when a part of a stream is, or a cursor."""
        load, streams = self._load, self._streams
        parts, of_stream = load.parts + self._moments.randrange(1, 40), streams.parts + 1
        await until(lambda: load.parts >= parts and streams.parts >= of_stream, 60)
        with trio.fail_after(60):
            await self._moment(number)
        self._broker.kill()
        for topic in streams.topics:
            topic.outage_begins()
        streams.tick()
        await trio.to_thread.run_sync(self._broker.begin, self._node.endpoints)
        streams.tick()
        await until(self._captures, 60)
        for topic in streams.topics:
            topic.outage_ends()

    async def _moment(self, number: int) -> None:
        if number % 3 == 0:
            await trio.sleep(self._moments.uniform(0, DELAY_S))
        elif number % 3 == 1:
            await self._streams.confirmed.wait()
        else:
            await self._streams.kept.wait()

    async def _captures(self) -> bool:
        """Whether this node knows that the broker of now wants the topics."""
        topics = [one.topic for one in self._streams.topics]
        found = [await self._node.wait_subscribers(one, count=0) for one in topics]
        broker = bytes.fromhex(self._broker.ready["node"])
        return all(broker in {one.node for one in members} for members in found)


async def everything_confirmed(load: Load, streams: StreamLoad, connection: Connection) -> None:
    """No more is to be published: wait until all that was has come, or for a minute."""
    load.done = streams.done = True
    with suppress(trio.TooSlowError):
        await until(lambda: load.published and streams.published and not load.read.missing, 60)
    await streams.finish()
    with trio.move_on_after(60):
        await drain(connection, "dead", load.dead)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_broker_killed_50_times_loses_nothing_it_confirmed(tmp_path: Path) -> None:
    with closing(Broker(str(tmp_path))) as broker:
        await trio.to_thread.run_sync(broker.begin)
        async with mesh.join(
            "shop", network_secret=SECRET, listen="tcp://127.0.0.1:0", seeds=[broker.ready["endpoint"]],
            zeroconf=False,
        ) as node:  # fmt: skip
            connection = durable.connect(node, timeout=60)
            await connection.declare_queue(
                "read", dead_letter_exchange="", dead_letter_routing_key="dead",
                delivery_limit=RETURNS,
            )  # fmt: skip
            for name in ("kept", "dead"):
                await connection.declare_queue(name)
            await connection.declare_exchange("both", type="fanout")
            await connection.bind("both", "read")
            await connection.bind("both", "kept")
            load, streams = Load(connection, seed=SEED), StreamLoad(node, connection, seed=SEED)
            await streams.declare()
            killing = Killing(broker, node, load, streams)
            async with trio.open_nursery() as nursery:
                for task in (load.publish, load.consume, streams.publish):
                    nursery.start_soon(task)
                for stream in ("audit", "ticks"):
                    nursery.start_soon(streams.read, stream)
                for number in range(KILLS):
                    await killing.kill(number)
                await everything_confirmed(load, streams, connection)
                nursery.cancel_scope.cancel()
            await drain(connection, "kept", load.kept)
            await streams.check()
    segments = await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))
    assert load.published
    load.read.check()
    load.kept.check()
    dead = load.dead.seen
    assert not load.dead.missing, "confirmed, and in neither place"
    assert all(map(dies, dead)), "nobody else is dead"
    rejected = [one for one in dead if one % REJECTED == 0]
    assert rejected == sorted(rejected), "dead in the order of publishing"
    assert not load.dead.redelivered, "of each dead letter there is one"
    assert load.requeued, "some were given back"
    assert load.unsettled, "some were settled in vain"
    assert len(load.kept.confirmed) > KILLS, "there was a load"
    numbers = [int(one.suffix[1:]) for one in segments]
    assert max(numbers) - len(numbers) > 10, "segments are given back"
