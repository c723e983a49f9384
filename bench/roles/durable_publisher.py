"""A program that publishes the ring with confirms: many outstanding, or one at a time.

Order `run`: publish until everything is confirmed; with `per_s`, at that rate. Order `one`: time single calls of
`publish`, each of which returns with its confirm.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import trio

import durable
from bench.roles.durable_queues import declare_all
from bench.roles.mesh_node import join
from bench.roles.stage import Stage, play_async
from bench.sequence import Ring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable.client.publisher import Publisher

LIST_COUNT = 1000
FANOUT, DIRECT = "bench.fanout", "bench.direct"
KEYS = ["k" * (1 + 7 * number % 31) for number in range(31)]
"""Routing keys; successive ones also differ in length."""
LIVES_S = 86_400, 86_401
"""Two different times to live, both longer than any run."""


async def run(stage: Stage) -> None:
    settings = stage.settings
    ring = Ring(settings["size_bytes"], settings["ring_count"])
    queues: list[str] = settings["queues"]
    async with join(settings) as node:
        broker = durable.connect(node)
        await declare_all(broker, queues)
        async with broker.publisher() as publisher:
            stage.ready()
            async for order in stage.orders_async():
                start, count = order["start"], order["count"]
                if order["do"] == "one":
                    stage.done(times_ns=await one_at_a_time(broker, queues[0], ring, start, count))
                    continue
                start_ns = time.perf_counter_ns()
                if per_s := order.get("per_s"):
                    await publish_paced(publisher, queues[0], ring, start, count, per_s)
                else:
                    await publish_by(settings, broker, publisher, ring, start, count)
                await publisher.flush()
                stage.done(start_ns=start_ns, end_ns=time.perf_counter_ns())


async def publish_by(
    settings: Mapping[str, Any], broker: durable.Connection, publisher: Publisher, ring: Ring,
    start: int, count: int,
) -> None:  # fmt: skip
    """Publish as the setting `way` says, by default "send"."""
    queues: list[str] = settings["queues"]
    match settings.get("way", "send"):
        case "send" if len(queues) == 1:
            await publish(publisher, queues[0], ring, start, count)
        case "send":
            await publish_in_turn(publisher, queues, ring, start, count, settings["in_row"])
        case "send_many":
            await publish_many(publisher, queues[0], ring, start, count)
        case "keys":
            await bind_all(broker, FANOUT, "fanout", queues)
            await publish_keys(publisher, FANOUT, KEYS, ring, start, count)
        case "turns":
            await bind_all(broker, DIRECT, "direct", queues)
            await publish_keys(publisher, DIRECT, queues, ring, start, count)
        case "unlike":
            await publish_unlike(publisher, queues[0], ring, start, count)
        case "alone":
            await one_at_a_time(broker, queues[0], ring, start, count)
        case way:
            raise ValueError(f"no way of publishing is called {way!r}")


async def publish(publisher: Publisher, queue: str, ring: Ring, start: int, count: int) -> None:
    send, payloads = publisher.send, ring.payloads
    at = start % ring.count
    for _ in range(count):
        await send("", queue, payloads[at])
        at += 1
        if at == ring.count:
            at = 0


async def publish_many(
    publisher: Publisher, queue: str, ring: Ring, start: int, count: int
) -> None:
    """Publish the ring as lists of at most `LIST_COUNT` messages."""
    end = start + count
    while start < end:
        at = start % ring.count
        some = ring.payloads[at : at + min(LIST_COUNT, end - start)]
        await publisher.send_many("", queue, some)
        start += len(some)


async def bind_all(broker: durable.Connection, exchange: str, kind: str, queues: list[str]) -> None:
    await broker.declare_exchange(exchange, type=kind)
    for queue in queues:
        await broker.bind(exchange, queue, queue)


async def publish_keys(
    publisher: Publisher, exchange: str, keys: list[str], ring: Ring, start: int, count: int
) -> None:
    """Publish each message with another routing key than the one before, so that each becomes a batch of its own."""
    send, payloads = publisher.send, ring.payloads
    for sequence in range(start, start + count):
        key = keys[sequence % len(keys)]
        await send(exchange, key, payloads[sequence % ring.count])


async def publish_unlike(
    publisher: Publisher, queue: str, ring: Ring, start: int, count: int
) -> None:
    """Publish each message with another time to live than the one before, so that each becomes a record of its own."""
    send, payloads = publisher.send, ring.payloads
    lives = [durable.Properties(ttl_us=10**6 * seconds) for seconds in LIVES_S]
    for sequence in range(start, start + count):
        properties = lives[sequence % len(lives)]
        await send("", queue, payloads[sequence % ring.count], properties=properties)


async def publish_in_turn(
    publisher: Publisher, queues: list[str], ring: Ring, start: int, count: int, in_row: int
) -> None:
    """Publish `in_row` messages to a queue, then as many to the next queue."""
    send, payloads = publisher.send, ring.payloads
    for sequence in range(start, start + count):
        queue = queues[sequence // in_row % len(queues)]
        await send("", queue, payloads[sequence % ring.count])


async def publish_paced(
    publisher: Publisher, queue: str, ring: Ring, start: int, count: int, per_s: int
) -> None:
    began_s = trio.current_time()
    for number in range(count):
        await trio.sleep_until(began_s + number / per_s)
        await publisher.send("", queue, ring.payloads[(start + number) % ring.count])


async def one_at_a_time(
    broker: durable.Connection, queue: str, ring: Ring, start: int, count: int
) -> list[int]:
    clock, times_ns = time.perf_counter_ns, list[int]()
    for sequence in range(start, start + count):
        sent_ns = clock()
        await broker.publish("", queue, ring.payloads[sequence % ring.count])
        times_ns.append(clock() - sent_ns)
    return times_ns


if __name__ == "__main__":
    play_async(run)
