"""Consuming: who gets what, in which order, and what comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

import durable
from durable.broker.batch_reader import BatchReader
from durable.errors import ConsumerCancelled, QueueInUse, UnknownQueue
from durable.protocol.properties import TTL_US_MAX, Properties
from durable.queues.lane import Lane
from mesh.protocol.batch import Batch
from tests.brokers import QUIET, SMALL, client, drain, numbered, payloads, serving, take, until_told
from tests.waiting import PATIENCE_S, until


async def counts(shop: durable.Connection, queue: str = "jobs") -> tuple[int, int]:
    """Ready and unacked."""
    found = (await shop.statistics())["queues"][queue]
    return found["ready"], found["unacked"]


async def wait_for(shop: durable.Connection, ready: int, unacked: int) -> None:
    async def reached() -> bool:
        return await counts(shop) == (ready, unacked)

    await until(reached)


async def test_prefetch_by_messages(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        async with shop.consume("jobs", prefetch=3) as deliveries:
            first = await take(deliveries, 3)
            assert await counts(shop) == (7, 3)
            await first[0].ack()
            assert payloads(await take(deliveries, 1)) == [b"3"]
            await wait_for(shop, 6, 3)


async def test_prefetch_by_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", [bytes(1000)] * 10)
        async with shop.consume("jobs", prefetch=0, prefetch_bytes=2500) as deliveries:
            await take(deliveries, 3)  # The third one begins within the limit.
            await wait_for(shop, 7, 3)
        async with shop.consume("jobs", prefetch=0, prefetch_bytes=1) as deliveries:
            await take(deliveries, 1)
            await wait_for(shop, 9, 1)


async def test_ack_nack_reject_singly_and_multiple(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        async with shop.consume("jobs") as deliveries:
            found = await take(deliveries, 10)
            await found[2].ack(multiple=True)
            await found[4].reject()
            await found[6].nack(requeue=False)
            await found[8].nack()
            (again,) = await take(deliveries, 1)
            assert (again.payload, again.redelivered) == (b"8", 1)
            await deliveries.synced()
            assert await counts(shop) == (0, 5)
        assert await drain(shop, "jobs") == [b"3", b"5", b"7", b"8", b"9"]


async def test_whole_batches_and_all_so_far_are_given_back_or_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("dead")
        await shop.declare_queue("jobs", dead_letter_exchange="", dead_letter_routing_key="dead")
        for first in range(0, 40, 10):
            await shop.publish_many("", "jobs", numbered(10, first))
        async with shop.consume("jobs") as deliveries:
            back, rejected, refused, kept = [await deliveries.take() for _ in range(4)]
            await rejected.reject()
            await refused.nack(requeue=False)
            await back.nack()
            again = await take(deliveries, 10)
            assert payloads(again) == numbered(10)
            await again[5].ack()
            await list(kept)[3].nack(requeue=False, multiple=True)  # Of the later ones none yet.
            await again[8].nack(multiple=True)
            await deliveries.synced()
            assert payloads(await take(deliveries, 14)) == [
                *numbered(5), *numbered(3, 6), *numbered(6, 34),
            ]  # fmt: skip
        assert await drain(shop, "jobs") == [*numbered(5), *numbered(4, 6), *numbered(6, 34)]
        assert sorted(map(int, await drain(shop, "dead"))) == list(range(10, 34))


async def test_batches(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(5000))
        found: list[bytes] = []
        async with shop.consume("jobs") as deliveries:
            with trio.fail_after(10):
                async for batch in deliveries.batches():
                    assert (
                        repr(batch) == f"<DeliveryBatch {len(found)} 'jobs' {len(batch)} messages>"
                    )
                    found += batch.payloads
                    await batch.ack()
                    if len(found) == 5000:
                        break
            await deliveries.synced()
            assert await counts(shop) == (0, 0)
        assert found == numbered(5000)


async def test_what_is_requeued_comes_back_in_its_old_place(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(20))
        async with shop.consume("jobs", prefetch=10) as deliveries:
            found = await take(deliveries, 10)
            for one in (found[7], found[1], found[4]):
                await one.nack()
            again = await take(deliveries, 3)
        assert payloads(again) == [b"1", b"4", b"7"] or sorted(payloads(again)) == [
            b"1",
            b"4",
            b"7",
        ]
        assert await drain(shop, "jobs") == numbered(20)


async def test_how_often_it_came_back_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"x")
        async with shop.consume("jobs") as deliveries:
            for times in range(3):
                (one,) = await take(deliveries, 1)
                assert one.redelivered == times
                await one.nack()
            await deliveries.synced()
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with shop.consume("jobs") as deliveries:
            (one,) = await take(deliveries, 1)
        assert one.redelivered >= 3


async def test_an_exclusive_consumer(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        await shop.declare_queue("jobs")
        async with shop.consume("jobs", exclusive=True):
            with pytest.raises(QueueInUse):
                async with other.consume("jobs"):
                    pass
        await wait_for_consumers(shop, 0)
        async with other.consume("jobs"):
            with pytest.raises(QueueInUse):
                async with shop.consume("jobs", exclusive=True):
                    pass


async def wait_for_consumers(shop: durable.Connection, count: int) -> None:
    await until_told(shop, lambda told: told["queues"]["jobs"]["consumers"] == count)


async def test_a_single_active_consumer_and_who_takes_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        await shop.declare_queue("jobs", single_active_consumer=True)
        async with other.consume("jobs") as waiting:
            pass
        await wait_for_consumers(shop, 0)
        async with shop.consume("jobs") as active, other.consume("jobs") as waiting:
            await shop.publish_many("", "jobs", numbered(5))
            assert payloads(await take(active, 5)) == numbered(5)
            await active._close()
            assert payloads(await take(waiting, 5)) == numbered(5)


async def test_consumers_of_higher_priority_come_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        await shop.declare_queue("jobs")
        async with (
            shop.consume("jobs", prefetch=2) as low,
            other.consume("jobs", priority=5, prefetch=3) as high,
        ):
            await shop.publish_many("", "jobs", numbered(5))
            assert payloads(await take(high, 3)) == numbered(3)
            assert payloads(await take(low, 2)) == numbered(2, 3)


async def test_a_consumer_that_vanishes_gives_everything_back_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        with pytest.raises(KeyError):
            async with client(broker) as gone, gone.consume("jobs") as deliveries:
                found = await take(deliveries, 10)
                await found[3].ack()
                await deliveries.synced()
                raise KeyError
        async with shop.consume("jobs") as deliveries:
            again = await take(deliveries, 9)
        assert payloads(again) == [b"0", b"1", b"2", *numbered(6, 4)]
        assert {one.redelivered for one in again} == {1}


async def test_consumers_are_told_when_their_queue_is_deleted(tmp_path: Path) -> None:
    """Found: what they settled afterwards was settled, and its log position released, twice."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        for durability in ("disk", "memory"):
            await shop.declare_queue(
                "jobs", durability=durability, dead_letter_exchange="amq.fanout"
            )
            await shop.publish_many("", "jobs", numbered(3))
            with pytest.raises(ConsumerCancelled, match="the queue was deleted") as lost:
                async with other.consume("jobs", prefetch=2) as deliveries:
                    found = await take(deliveries, 2)
                    assert await shop.delete_queue("jobs") == 1
                    with pytest.raises(ConsumerCancelled) as cancelled, trio.fail_after(10):
                        await deliveries.take()
                    assert cancelled.value.queue == "jobs"
                    assert cancelled.value.reason == "the queue was deleted"
                    await found[0].ack()
                    await found[1].reject()
            assert lost.value.unsettled == 2
        with pytest.raises(UnknownQueue):
            async with shop.consume("jobs"):
                pass
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"still there")
        assert await drain(shop, "jobs") == [b"still there"]
        running = broker.hosted("/")
        assert not running.batch_reader.lost
        assert not running.vhost.bodies.held_bytes
        assert not running.vhost.registry.journal.dead


async def test_messages_under_way_to_a_queue_that_is_deleted(tmp_path: Path) -> None:
    """Found: they were enqueued in a queue that was no more, and held their segment for ever."""
    async with serving(tmp_path) as broker, client(broker) as shop, trio.open_nursery() as nursery:
        for _ in range(20):
            await shop.declare_queue("jobs")
            nursery.start_soon(shop.publish_many, "", "jobs", numbered(100))
            await shop.delete_queue("jobs")
        await until(lambda: not nursery.child_tasks)
        segments = broker.hosted("/").log._store.segments
        assert sum(one.references for one in list(segments)) == 0


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_without_acks(tmp_path: Path, durability: str) -> None:
    """Found: messages were settled before their bodies were looked up, and none arrived."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", durability=durability)
        await shop.publish_many("", "jobs", [bytes(1000)] * 3000)
        async with shop.consume("jobs", no_ack=True, prefetch=1) as deliveries:
            await take(deliveries, 3000)
            await wait_for(shop, 0, 0)
        assert not broker.hosted("/").batch_reader.lost


async def test_a_consumer_without_acks_that_does_not_read_leaves_the_rest_in_the_queue(
    tmp_path: Path,
) -> None:
    """Found: the whole queue was handed to its session, and lost with it."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as lazy:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", [bytes(100_000)] * 200)
        async with lazy.consume("jobs", no_ack=True) as deliveries:
            await take(deliveries, 1)
        await wait_for_consumers(shop, 0)
        ready, unacked = await counts(shop)
        assert ready > 100
        assert not unacked


async def test_a_consumer_without_limits_gets_all_of_a_long_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            for number in range(3000):  # Each a record and a slice of its own.
                lives = Properties("", ttl_us=TTL_US_MAX - number % 2)
                await publisher.send("", "jobs", b"%d" % number, properties=lives)
        async with shop.consume("jobs", prefetch=0, prefetch_bytes=0) as deliveries:
            assert payloads(await take(deliveries, 3000)) == numbered(3000)


async def test_a_thousand_slices_that_cannot_be_read_stop_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: its consumer was paused at so many, and went on only when some of them were sent."""
    read = BatchReader.read

    async def damaged(
        self: BatchReader, lane: Lane, start: int, end: int
    ) -> list[tuple[Batch, int]] | None:
        return await read(self, lane, start, end) if start >= 1300 else None

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            for number in range(1500):  # Each a record of its own.
                lives = Properties("", ttl_us=TTL_US_MAX - number % 2)
                await publisher.send("", "jobs", b"%d" % number, properties=lives)
        monkeypatch.setattr(BatchReader, "read", damaged)
        async with shop.consume("jobs", prefetch=0) as deliveries:
            assert payloads(await take(deliveries, 200)) == numbered(200, 1300)


async def test_memory_queues_are_read_from_memory(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", durability="memory")
        await shop.publish_many("", "jobs", numbered(100))
        bodies = broker.hosted("/").vhost.bodies
        held_bytes = (await shop.statistics())["memory"]["held_bytes"]
        assert held_bytes == bodies.held_bytes > 100
        assert await drain(shop, "jobs") == numbered(100)
        await until(lambda: not bodies.held_bytes)


async def test_priorities(tmp_path: Path) -> None:
    """All ten; each in the order in which it came. What is higher than the queue's has its highest."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_priority=9)
        await shop.declare_queue("few", max_priority=5)
        for priority in (3, 9, 0, 7, 1, 8, 5, 2, 6, 4):
            for again in range(2):
                await shop.publish("", "jobs", b"%d %d" % (priority, again), priority=priority)
        for priority in (9, 1, 5):
            await shop.publish("", "few", b"%d" % priority, priority=priority)
        assert await drain(shop, "few") == [b"9", b"5", b"1"]
    async with serving(tmp_path) as broker, client(broker) as shop:
        by_priority = [b"%d %d" % (one, again) for one in range(9, -1, -1) for again in range(2)]
        assert await drain(shop, "jobs") == by_priority


async def test_acks_without_waiting_survive_a_clean_stop(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        async with shop.consume("jobs") as deliveries:
            for one in (await take(deliveries, 10))[:5]:
                await one.ack()
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == numbered(5, 5)


async def test_the_dead_of_a_queue_that_is_replaced_while_they_are_read_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: they were settled in the new queue, which had no such lane, and all ended."""
    reading, go_on, read = trio.Event(), trio.Event(), BatchReader.read

    async def slow(
        self: BatchReader, lane: Lane, start: int, end: int
    ) -> list[tuple[Batch, int]] | None:
        reading.set()
        await go_on.wait()
        return await read(self, lane, start, end)

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", dead_letter_exchange="", dead_letter_routing_key="graves")
        await shop.declare_queue("graves")
        await shop.publish("", "jobs", b"x")
        async with shop.consume("jobs") as deliveries:
            (one,) = await take(deliveries, 1)
            monkeypatch.setattr(BatchReader, "read", slow)
            await one.reject()
            with trio.fail_after(10):
                await reading.wait()
                assert await shop.delete_queue("jobs") == 0
                await shop.declare_queue("jobs")
        monkeypatch.undo()
        go_on.set()
        await shop.publish("", "jobs", b"new")
        assert await drain(shop, "jobs") == [b"new"]
        assert await counts(shop, "graves") == (0, 0)


async def test_a_reader_whose_stream_is_deleted_while_it_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it looked at what was left, record by record, then waited for the next one."""
    asked: list[int] = []

    async def freed(self: BatchReader, lane: Lane, start: int, end: int) -> None:
        asked.append(start)
        await shop.delete_stream("audit")

    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        for payload in numbered(3):
            await shop.publish("", "audit", payload)
        monkeypatch.setattr(BatchReader, "read", freed)
        async with shop.read("audit", start="first") as records:
            with pytest.raises(ConsumerCancelled), trio.fail_after(PATIENCE_S):
                await records.take()
        assert asked == [0]


async def test_whoever_takes_little_at_a_time_gets_large_batches_cut(tmp_path: Path) -> None:
    """Found by reading: its session crashed and was opened again, for ever."""
    async with (
        serving(tmp_path) as broker,
        client(broker) as shop,
        client(broker, "reader", payload_bytes_max=1 << 17) as reader,
    ):
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        large = [bytes([number]) * 50_000 for number in range(10)]
        await shop.publish_many("", "jobs", large)
        await shop.publish_many("", "audit", large)
        async with reader.consume("jobs") as deliveries:
            assert payloads(await take(deliveries, 10)) == large
        async with reader.read("audit", start="first") as records:
            assert payloads(await take(records, 10)) == large


async def test_many_separate_settlements_in_one_turn(tmp_path: Path) -> None:
    """Found: they went in one part, which was more than the window, and leaving waited for ever."""
    config = replace(SMALL, tunnel_window_bytes=128 * 1024)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(20_000))
        with trio.fail_after(PATIENCE_S):
            async with shop.consume("jobs", prefetch=0) as deliveries:
                for one in (await take(deliveries, 20_000))[::2]:
                    await one.ack()
        assert await drain(shop, "jobs") == numbered(20_000)[1::2]


async def test_a_prefetch_that_cannot_be(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(ValueError, match="prefetch_bytes is -1"):
            shop.consume("jobs", prefetch_bytes=-1)


async def test_the_largest_message_that_a_broker_takes_is_delivered(tmp_path: Path) -> None:
    """Found: a consumer's window was 4 MiB whatever the broker's was, and the queue stood still."""
    log = replace(SMALL.log, segment_bytes=16 << 20, reserve_bytes=1 << 20)
    config = replace(SMALL, log=log, tunnel_window_bytes=8 << 20)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        large = [bytes(6 << 20), b"behind it"]
        await shop.publish_many("", "jobs", large)
        assert await drain(shop, "jobs") == large


async def test_acks_travel_with_the_next_publish_unless_somebody_waits(tmp_path: Path) -> None:
    """Each had a sync of its own: of messages that come one by one the disk wrote twice as often."""
    alone = replace(QUIET, log=replace(QUIET.log, company_s=PATIENCE_S))
    async with serving(tmp_path, config=alone) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.consume("jobs") as deliveries:
            before = (await shop.statistics())["log"]["commits"]
            for number in range(20):
                await shop.publish("", "jobs", b"%d" % number)
                (one,) = await take(deliveries, 1)
                await one.ack()
            assert (await shop.statistics())["log"]["commits"] == before + 20
            with trio.fail_after(PATIENCE_S / 2):
                await deliveries.synced()
        await shop.publish("", "jobs", b"last")
        with trio.fail_after(PATIENCE_S / 2):
            async with shop.consume("jobs") as deliveries:
                (one,) = await take(deliveries, 1)
                await one.ack()
            assert await shop.purge_queue("jobs") == 0
