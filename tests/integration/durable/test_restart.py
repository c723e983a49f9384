"""A broker that is stopped and started: everything confirmed is there, nothing acked comes back."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

import durable
from durable.broker.checkpoints import Checkpointer
from durable.broker.directory import vhost_path
from durable.errors import StoreFailed, StoreInUse, UnknownExchange
from durable.log.disk import File
from durable.log.header import segment_name
from durable.log.reader import Reader
from durable.log.real_disk import RealDirectory
from durable.log.record import Record
from durable.vhost.checkpointing import CheckpointRound
from tests.brokers import (
    PROMPT,
    QUIET,
    SMALL,
    at,
    client,
    drain,
    numbered,
    payloads,
    serving,
    shop_at,
    take,
)
from tests.nodes import free_ports
from tests.vhosts import flushed
from tests.waiting import PATIENCE_S, until


async def test_everything_confirmed_is_there_and_nothing_settled_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        for queue in ("a", "b"):
            await shop.declare_queue(queue, max_priority=2)
            await shop.bind("amq.fanout", queue)
        for number in range(20):
            await shop.publish_many(
                "amq.fanout", "", numbered(100, 100 * number), priority=number % 3
            )
        async with shop.consume("a", prefetch=0) as deliveries:
            found = await take(deliveries, 2000)
            for number, one in enumerate(found):
                if number % 7:
                    await one.ack()
            await deliveries.synced()
        left = [one.payload for number, one in enumerate(found) if not number % 7]
    for _ in range(2):
        async with serving(tmp_path) as broker, client(broker) as shop:
            async with shop.consume("a", prefetch=0) as deliveries:
                assert payloads(await take(deliveries, len(left))) == left
            counts = (await shop.statistics())["queues"]
            assert (counts["a"]["ready"] + counts["a"]["unacked"], counts["b"]["ready"]) == (
                len(left), 2000,
            )  # fmt: skip
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "a") == left
        assert sorted(await drain(shop, "b")) == sorted(numbered(2000))


async def test_segments_that_nobody_needs_hold_no_references(tmp_path: Path) -> None:
    """References are the same after a restart as before it."""

    def references(broker: durable.Broker) -> int:
        return sum(one.references for one in broker.hosted("/").log._store.segments)

    async with serving(tmp_path) as broker, client(broker) as shop:
        for queue in ("a", "b"):
            await shop.declare_queue(queue)
            await shop.bind("amq.fanout", queue)
        for number in range(10):
            await shop.publish_many("amq.fanout", "", numbered(10, 10 * number))
        async with shop.consume("a") as deliveries:
            for one in (await take(deliveries, 100))[:55]:
                await one.ack()
            await deliveries.synced()
        assert references(broker) == 10 + 5
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert references(broker) == 10 + 5
        await drain(shop, "a")
        await shop.delete_queue("b")
        await flushed(broker.hosted("/"))
        assert references(broker) == 0


async def test_definitions_are_as_they_were(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=7, ttl_s=100.5, delivery_limit=3)
        await shop.declare_queue("gone")
        await shop.declare_exchange("events", type="headers", alternate="amq.fanout")
        await shop.bind("events", "jobs", arguments={"a": 1, "x-match": "any"})
        await shop.declare_stream("audit", patterns=["a.>"], max_age_s=60)
        await shop.set_permission("shop", configure=".*", write=".*", read=".*")
        await shop.delete_queue("gone")
        before = list(broker.hosted("/").vhost.registry.declared())
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert list(broker.hosted("/").vhost.registry.declared()) == before
        await shop.declare_queue("jobs", max_length=7, ttl_s=100.5, delivery_limit=3)
        await shop.declare_stream("audit", patterns=["a.>"], max_age_s=60)


async def test_a_queue_does_not_end_because_the_broker_does(tmp_path: Path) -> None:
    """Found: with SIGTERM it went with all that was in it, for then its consumers left first."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        async with AsyncExitStack() as consuming:
            async with serving(tmp_path, **at(port)):
                await shop.declare_queue("jobs", auto_delete=True)
                await shop.publish_many("", "jobs", numbered(10))
                deliveries = await consuming.enter_async_context(shop.consume("jobs"))
                for one in await take(deliveries, 2):
                    await one.ack()
                await deliveries.synced()
            async with serving(tmp_path, **at(port)) as broker:
                again = await take(deliveries, 8)
                assert payloads(again) == numbered(8, 2)
                for one in again:
                    await one.ack()
                await deliveries.synced()
                await consuming.aclose()
                queues = broker.hosted("/").vhost.registry.queues
                await until(lambda: not queues)


async def test_an_exchange_that_ends_with_an_exclusive_queue_does_not_come_back(
    tmp_path: Path,
) -> None:
    """Whether the queue ended before the broker, or with it."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        for name in ("deleted", "left", "unbound"):
            await shop.declare_exchange(name, auto_delete=True)
        for name in ("deleted", "left"):
            await shop.declare_queue(name, exclusive=True)
            await shop.bind(name, name)
        await shop.delete_queue("deleted")
        with pytest.raises(UnknownExchange):
            await shop.publish("deleted", "", b"x")
        await shop.publish("left", "", b"x")
    async with serving(tmp_path) as broker, client(broker) as shop:
        for name in ("deleted", "left"):
            with pytest.raises(UnknownExchange):
                await shop.publish(name, "", b"x")
        await shop.publish("unbound", "", b"routed nowhere, and that is no error")


async def fill_a_segment(shop: durable.Connection) -> None:
    """With what nobody needs any more."""
    await shop.publish_many("", "fill", [bytes(10_000)] * 110)
    await drain(shop, "fill")


async def test_a_delivery_limit_holds_without_checkpoint_files(tmp_path: Path) -> None:
    """Found: with the records of its returns freed, a message could come back as often again."""

    def segments() -> list[str]:
        return sorted(one.name for one in tmp_path.rglob("msgs.*") if any(one.read_bytes()[:1000]))

    def remove_checkpoints() -> None:
        for name in ("enq", "ack", "checkpoint"):
            for path in tmp_path.rglob(name):
                path.unlink()

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=3)
        await shop.declare_queue("fill")
        await shop.publish("", "jobs", b"x")
        await fill_a_segment(shop)
        async with shop.consume("jobs") as deliveries:
            for _ in range(2):
                (one,) = await take(deliveries, 1)
                await one.nack()
            await take(deliveries, 1)
        queue = broker.hosted("/").vhost.registry.queue("jobs")
        await until(lambda: queue.ready == 1)
        await flushed(broker.hosted("/"))
        returned = segments()[-1]
        for _ in range(2):
            await fill_a_segment(shop)
    assert returned not in segments(), "the records of its returns are gone"
    remove_checkpoints()
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with shop.consume("jobs") as deliveries:
            (one,) = await take(deliveries, 1)
            assert (one.payload, one.redelivered) == (b"x", 3)
            await one.nack()
            await deliveries.synced()
        assert (await shop.statistics())["queues"]["jobs"]["ready"] == 0


async def test_a_lost_segment_that_a_checkpoint_points_to_costs_what_was_in_it(
    tmp_path: Path,
) -> None:
    """Found: the broker did not start."""
    # Or compaction has carried it elsewhere, and that segment with it, where this takes long.
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_queue("fill")
        await shop.publish("", "jobs", b"lost")
        for _ in range(2):
            await fill_a_segment(shop)
        await shop.publish("", "jobs", b"left")
    min(await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))).unlink()
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == [b"left"]


async def test_what_an_older_life_of_a_name_held_does_not_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(5))
        await shop.delete_queue("jobs")
        await shop.declare_queue("jobs", max_priority=3)
        await shop.publish("", "jobs", b"new")
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == [b"new"]


async def test_checkpoints_are_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: the last one wrote the same files as the one that was under way."""
    under_way: list[Checkpointer] = []
    go_on, write_files = threading.Event(), Checkpointer._write_files

    def write(self: Checkpointer, taking: CheckpointRound, marks: bytes) -> None:
        under_way.append(self)
        go_on.wait(PATIENCE_S)
        write_files(self, taking, marks)

    monkeypatch.setattr(Checkpointer, "_write_files", write)
    monkeypatch.setattr(Checkpointer, "due", True)
    with trio.fail_after(PATIENCE_S):
        async with durable.Broker(tmp_path, config=replace(SMALL, idle_s=0.01)) as broker:
            log = broker.hosted("/").log
            await until(lambda: under_way)
            end = log.end
            async with trio.open_nursery() as nursery:
                nursery.start_soon(under_way[0].write)
                await trio.testing.wait_all_tasks_blocked()
                assert log.end == end, "it waits for the other one's files"
                go_on.set()


async def test_so_many_bytes_of_settlements_are_enough_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another segment: what they say need not be read again."""
    looks: list[bool] = []
    due = Checkpointer.due

    def look(self: Checkpointer) -> bool:
        looks.append(due.__get__(self))
        return looks[-1]

    monkeypatch.setattr(Checkpointer, "due", property(look))
    config = replace(SMALL, checkpoint_bytes=1000, idle_s=0.01)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(1000))
        checkpoint = vhost_path(tmp_path, "/") / "log" / "checkpoint"
        await until(checkpoint.exists)  # Of the first segments.
        async with shop.consume("jobs", prefetch=0) as deliveries:
            found = await take(deliveries, 1000)
            before = checkpoint.read_bytes()
            segments = broker.hosted("/").log.statistics().segments
            await found[0].ack()
            await deliveries.synced()
            looks.clear()
            await until(lambda: len(looks) == 10)
            assert not any(looks)
            assert checkpoint.read_bytes() == before
            for one in found[1:200:2]:  # Each a range of its own.
                await one.ack()
            await until(lambda: checkpoint.read_bytes() != before)
        assert broker.hosted("/").log.statistics().segments == segments


async def test_so_many_records_are_enough_for_a_checkpoint_and_a_start_begins_at_it(
    tmp_path: Path,
) -> None:
    """Without another segment, from the middle of which it reads on."""
    log = replace(SMALL.log, segment_bytes=1 << 22)
    config = replace(SMALL, log=log, checkpoint_records=1000, idle_s=0.01)
    live, killed = tmp_path / "live", tmp_path / "killed"
    async with serving(live, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        checkpoint = vhost_path(live, "/") / "log" / "checkpoint"
        await until(checkpoint.exists)  # Of the first segment.
        before = checkpoint.read_bytes()
        for number in range(900):
            await shop.publish("", "jobs", b"%d" % number)
        assert checkpoint.read_bytes() == before
        for number in range(900, 1200):
            await shop.publish("", "jobs", b"%d" % number)
        await until(lambda: checkpoint.read_bytes() != before)
        before = checkpoint.read_bytes()
        for number in range(1200, 1900):
            await shop.publish("", "jobs", b"%d" % number)
        assert checkpoint.read_bytes() == before
        assert broker.hosted("/").log.statistics().segments == 1
        shutil.copytree(live, killed)
    checkpoint = vhost_path(killed, "/") / "log" / "checkpoint"
    async with serving(killed, config=config) as broker, client(broker) as shop:
        # Since the last checkpoint, and up to 64 KiB before it.
        assert 600 < broker.hosted("/").log.report.records < 1500
        for number in range(1900, 2400):
            await shop.publish("", "jobs", b"%d" % number)
        await until(lambda: checkpoint.read_bytes() != before)  # What it had to read counts.
        assert [int(one) for one in await drain(shop, "jobs")] == list(range(2400))


async def test_segments_that_a_start_has_read_count_for_the_next_checkpoint(tmp_path: Path) -> None:
    """Found: only those did that were begun since. So a broker that was killed again and again, each time before it
    began another, read more at each start, and freed nothing."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    async with serving(live, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", [bytes(100_000)] * 30)
        shutil.copytree(live, killed)
    checkpoint = vhost_path(killed, "/") / "log" / "checkpoint"
    assert not checkpoint.exists()
    async with serving(killed, config=PROMPT) as broker:
        assert broker.hosted("/").log.report.segments > 2
        await until(checkpoint.exists)


async def test_checkpoints_for_records_write_no_more_than_the_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the indexes are."""
    sizes: list[int] = []
    write_files = Checkpointer._write_files

    def write(self: Checkpointer, taking: CheckpointRound, marks: bytes) -> None:
        sizes.append(sum(one.size_bytes for one in taking.changed))
        write_files(self, taking, marks)

    monkeypatch.setattr(Checkpointer, "_write_files", write)
    log = replace(SMALL.log, segment_bytes=1 << 22)
    config = replace(SMALL, log=log, checkpoint_records=1, idle_s=0.001)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for number in range(1500):
            await shop.publish("", "jobs", bytes(number % 7), ttl=1000 + number % 5)
        assert len(sizes) > 5
        assert max(sizes) > 10_000
        committed = broker.hosted("/").log.statistics().committed_bytes
        assert sum(sizes[:-1]) <= committed
        await shop.purge_queue("jobs")
        for number in range(300):  # A snapshot has all of them, and that counts as well.
            await shop.declare_queue(f"queue-{number}-of-many")
        sizes.clear()
        for number in range(300):
            await shop.publish("", "jobs", b"%d" % number)
        assert len(sizes) < 10


async def test_a_broker_does_not_start_while_it_cannot_read_what_was_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: without a descriptor for that it started, and what had been acked could come back for good."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        async with shop.consume("jobs") as deliveries:
            for one in (await take(deliveries, 10))[::2]:
                await one.ack()
    opened = RealDirectory.open

    def refuse(folder: RealDirectory, name: str) -> File:
        if name == "ack":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(RealDirectory, "open", refuse)
        with pytest.raises(StoreFailed, match=r"cannot be opened: .* open files: .*/ack"):
            async with serving(tmp_path):
                pass
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == numbered(10)[1::2]


async def test_two_brokers_on_one_directory(tmp_path: Path) -> None:
    """The second one writes nothing. Found: the name of `/`, so where both began at once, one ended for a file that was
    gone."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        name = vhost_path(tmp_path, "/") / "vhost"
        name.unlink()
        with pytest.raises(StoreInUse):
            async with serving(tmp_path):
                pass
        assert not name.exists()
        await shop.publish("", "jobs", b"x")
        assert await drain(shop, "jobs") == [b"x"]


async def test_a_segment_that_somebody_removed_costs_what_was_in_it(tmp_path: Path) -> None:
    """The checkpoints still name its log positions."""
    config = replace(SMALL, log=replace(SMALL.log, segment_bytes=1 << 17, reserve_bytes=1 << 13))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for number in range(30):
            await shop.publish("", "jobs", (b"%d" % number).ljust(20_000))
    (vhost_path(tmp_path, "/") / "log" / segment_name(1)).unlink()
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        left = [int(one) for one in await drain(shop, "jobs")]
        assert left == list(range(left[0], 30))
        assert 1 < left[0] < 10


async def test_a_backlog_of_many_queues_is_read_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: each of a hundred consumers read all that stood between the messages of its own queue."""
    names, rounds, batch = [f"queue {number}" for number in range(30)], 10, [bytes(500)] * 20
    config = durable.BrokerConfig()
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        for name in names:
            await shop.declare_queue(name)
        for _ in range(rounds):
            for name in names:
                await shop.publish_many("", name, batch)
    read_bytes = 0
    read_some = Reader.read_some

    def counting(reader: Reader, position: int, end: int, limit_bytes: int) -> list[Record]:
        nonlocal read_bytes
        found = read_some(reader, position, end, limit_bytes)
        read_bytes += sum(one.header.total_bytes for one in found)
        return found

    monkeypatch.setattr(Reader, "read_some", counting)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:

        async def consume(name: str) -> None:
            async with shop.consume(name) as deliveries:
                await take(deliveries, rounds * len(batch))

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(consume, name)
    stored_bytes = len(names) * rounds * sum(map(len, batch))
    assert stored_bytes <= read_bytes < 5 * stored_bytes
