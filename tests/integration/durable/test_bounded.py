"""Consumers that do not do their part, and a broker whose memory and disk stay bounded all the same."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import durable
import mesh
from tests.broker import broker as broker_process
from tests.brokers import SMALL, client, serving, take
from tests.ledger import Ledger, number_of, payload
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.waiting import until

HELD = 50
CONFIG = replace(SMALL, log=replace(SMALL.log, compaction_share_max=0.5), idle_s=0.02)
MIB = 1 << 20


async def publish(
    shop: durable.Connection, ledger: Ledger, numbers: range, padding: int = 0
) -> None:
    """Each message with so many bytes behind it that say nothing."""
    await shop.publish_many("", "jobs", [payload(one) + bytes(padding) for one in numbers])
    ledger.confirmed.update(numbers)


async def consume(shop: durable.Connection, ledger: Ledger, count: int, padding: int = 0) -> None:
    """The next so many messages, acked for certain."""
    async with shop.consume("jobs", prefetch=500) as deliveries:
        numbers: list[int] = []
        with trio.fail_after(40):
            while len(numbers) < count:
                batch = await deliveries.take()
                for data in batch.payloads:
                    numbers.append(number_of(data[: len(data) - padding]))
                    ledger.delivered(numbers[-1])
                await batch.ack()
            await deliveries.synced()
        ledger.settled.update(numbers)


async def test_a_consumer_that_never_acks_holds_its_prefetch_and_nothing_else(
    tmp_path: Path,
) -> None:
    """The others go on; what it held comes back at once, in its old place, when it vanishes."""
    ledger, rounds, each, padding = Ledger(), 30, 100, 3000
    async with serving(tmp_path, config=CONFIG) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await publish(shop, ledger, range(HELD), padding)
        running = broker.hosted("/")
        queue, segments = running.vhost.registry.queue("jobs"), running.log._store.segments
        async with (
            client(broker, "stuck") as other,
            other.consume("jobs", prefetch=HELD) as never,
        ):
            held = await take(never, HELD)
            for number in range(rounds):
                first = HELD + number * each
                await publish(shop, ledger, range(first, first + each), padding)
                await consume(shop, ledger, each, padding)
                assert (queue.ready, queue.unacked) == (0, HELD)
                assert running.vhost.bodies.recent_bytes <= CONFIG.recent_bytes + each * 4000
            assert running.log.statistics().committed_bytes > 8 * MIB
            # What it holds keeps the segment it is in; those behind are given back.
            await until(lambda: len(segments) <= 4)
            assert not ledger.settled & {number_of(one.payload[:-padding]) for one in held}
            # Else what comes back goes by way of the shop's last one, if that ends later.
            await until(lambda: len(queue.consumers) == 1)
        await until(lambda: queue.ready == HELD)
        async with shop.consume("jobs", prefetch=0) as deliveries:
            again = await take(deliveries, HELD)
        assert [number_of(one.payload[:-padding]) for one in again] == list(range(HELD))
        assert {one.redelivered for one in again} == {1}
    for one in again:
        ledger.delivered(number_of(one.payload[:-padding]))
    assert not ledger.missing
    assert not ledger.redelivered


def resident_bytes(pid: int) -> int:
    """Of a process, by its kernel."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
async def test_a_queue_that_nobody_reads_grows_on_the_disk_and_not_in_memory(
    tmp_path: Path,
) -> None:
    """120 MB through a broker that keeps 64 KiB of bodies; then all of it comes, in order."""
    ledger, parts, each, padding = Ledger(), 600, 20, 10_000
    with closing(broker_process(str(tmp_path))) as process:
        async with mesh.join(
            "shop", network_secret=SECRET, listen=ANY_PORT, zeroconf=False,
            seeds=[process.ready["endpoint"]],
        ) as node:  # fmt: skip
            shop = durable.connect(node, timeout=60)
            await shop.declare_queue("jobs")
            for number in range(parts):
                await publish(shop, ledger, range(number * each, (number + 1) * each), padding)
                if number == parts // 10:  # Buffers of tunnels and of the log have grown by now.
                    before = resident_bytes(process.pid)
            grown = resident_bytes(process.pid) - before
            counted = await shop.statistics()
            assert counted["queues"]["jobs"]["size_bytes"] > 110 * MIB
            assert counted["memory"]["recent_bytes"] < 4 * MIB
            assert grown < 10 * MIB, "of 100 MB"
            await consume(shop, ledger, parts * each, padding)
    ledger.check()
    assert not ledger.redelivered


async def test_queues_in_memory_take_so_much_of_it_and_no_more(tmp_path: Path) -> None:
    """Whoever publishes there is told so; the others, and whoever consumes, go on."""
    config = replace(SMALL, memory_bytes=MIB)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", durability="memory")
        await shop.declare_queue("stored")
        ledger, size_bytes = Ledger(), 10_000
        with pytest.raises(durable.MemoryFull) as full:
            for number in range(2 * MIB // size_bytes):
                await publish(shop, ledger, range(number, number + 1), size_bytes)
        assert full.value.limit_bytes == MIB <= full.value.held_bytes < MIB + 2 * size_bytes
        assert broker.hosted("/").vhost.bodies.held_bytes == full.value.held_bytes
        await shop.publish("", "stored", b"goes on")
        await consume(shop, ledger, len(ledger.confirmed), size_bytes)
        ledger.check()
        await publish(shop, ledger, range(1000, 1001), size_bytes)


async def test_what_a_queue_in_memory_took_is_free_when_it_is_purged_or_deleted(
    tmp_path: Path,
) -> None:
    """Found: it was at the next turn, so a message published at once was refused now and then."""
    config = replace(SMALL, memory_bytes=MIB)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        running = broker.hosted("/")
        await shop.declare_queue("jobs", durability="memory")
        queue = running.vhost.registry.queue("jobs")
        await shop.publish("", "jobs", bytes(MIB))
        assert running.vhost.bodies.is_full
        assert await running.purge(queue) == 1
        assert running.vhost.bodies.held_bytes == 0  # No other task has had a turn since.
        await shop.publish("", "jobs", bytes(MIB))
        await running.delete_queue(queue, "the queue was deleted")
        assert running.vhost.bodies.held_bytes == 0
