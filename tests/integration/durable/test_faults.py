"""A disk that fails or hangs under a running broker: what its clients are told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from durable.broker import reading
from durable.broker.broker import Broker
from durable.broker.control import Control
from durable.broker.publishing import _Session as Session
from durable.broker.running_vhost import RunningVhost
from durable.client.sender import PARTS_UNCONFIRMED_MAX
from durable.errors import BrokerLost, InUse, StoreFailed, StoreFull
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import MemoryDisk, Volume
from durable.vhost.changes import Change
from durable.vhost.stream import Stream
from mesh.protocol.batch import Batch
from tests.brokers import SMALL, client, drain, node_of, numbered, serving, take, until_told
from tests.nodes import node, subscribed
from tests.waiting import PATIENCE_S, until

LONG = "billing" * 30
"""The name of a cursor that takes more room than a small message."""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Of the disk that brokers open instead of this machine's."""
    faults, volume = Faults(), Volume()
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: FaultyDisk(volume, faults))
    return faults


async def _settled(broker: Broker) -> None:
    """The next sync is that of what is published next, not that of the segment ahead."""
    await broker.hosted("/").log._wait_ready()


async def test_after_a_failed_sync_nothing_is_confirmed_and_everybody_is_told(
    tmp_path: Path, faults: Faults
) -> None:
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish("", "jobs", b"before")
        await _settled(broker)
        faults.sync_error_at = faults.syncs + 1
        with trio.fail_after(PATIENCE_S):
            with pytest.raises(StoreFailed, match="restart the broker"):
                await connection.publish("", "jobs", b"lost")
            with pytest.raises(StoreFailed, match="restart the broker"):
                await connection.publish("", "jobs", b"refused")
            with pytest.raises(StoreFailed):
                await connection.declare_queue("more")
            with pytest.raises(StoreFailed):
                await connection.purge_queue("jobs")
            statistics = await connection.statistics()
        assert "failed" in statistics["log"]["failure"]


async def test_a_session_whose_tasks_all_meet_a_failed_disk_ends_with_one_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by CI: two of them in one group were a crash of the handler, with a stack trace."""

    def fail(session: Session, batches: object) -> None:
        session._confirms.fail(StoreFailed("no disk"))
        raise StoreFailed("no disk")

    monkeypatch.setattr(Session, "publish", fail)
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed, match="no disk"):
            await connection.publish("", "jobs", b"lost")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_who_waits_for_acks_to_be_on_disk_is_told_when_they_never_will_be(
    tmp_path: Path, faults: Faults
) -> None:
    """Found by reading: `synced` waited for ever."""
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish("", "jobs", b"one")
        await _settled(broker)
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed):
            async with connection.consume("jobs") as deliveries:
                faults.sync_error_at = faults.syncs + 1
                await (await anext(deliveries)).ack()
                await deliveries.synced()


async def test_what_nobody_waited_for_when_the_disk_failed_is_told_by_the_next_flush(
    tmp_path: Path, faults: Faults
) -> None:
    """Found: of numbered messages, that all of them were on disk."""
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await _settled(broker)
        publisher = connection.numbered_publisher("replay")
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed):
            async with publisher:
                faults.sync_error_at = faults.syncs + 1
                await publisher.send(0, "", "jobs", numbered(2))
                await until(lambda: publisher.ended)
                with pytest.raises(StoreFailed):
                    await publisher.flush()


async def test_what_was_confirmed_before_a_failed_sync_is_there_after_a_restart(
    tmp_path: Path, faults: Faults
) -> None:
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish_many("", "jobs", numbered(100))
        await _settled(broker)
        faults.sync_error_at = faults.syncs + 1
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed):
            await connection.publish("", "jobs", b"lost")
    faults.sync_error_at = None
    async with serving(tmp_path) as broker, client(broker) as connection:
        found = await drain(connection, "jobs")
    assert found[:100] == numbered(100)
    assert found[100:] in ([], [b"lost"]), "unknown is unknown"


async def test_who_comes_while_a_deletion_waits_for_room_counts(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: whether the queue was in use was asked before the wait, not after it."""
    asked, released, delete = trio.Event(), threading.Event(), Control.delete_queue

    async def delete_queue(
        self: Control, name: str, if_empty: bool = False, if_unused: bool = False
    ) -> int | None:
        asked.set()
        return await delete(self, name, if_empty, if_unused)

    monkeypatch.setattr(Control, "delete_queue", delete_queue)
    config = replace(SMALL, log=replace(SMALL.log, pending_bytes_max=1))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        log = broker.hosted("/").log

        async def delete_if_unused() -> None:
            with pytest.raises(InUse, match="1 consumers"):
                await shop.delete_queue("jobs", if_unused=True)

        with trio.fail_after(PATIENCE_S):
            faults.before_sync = lambda: released.wait(PATIENCE_S)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shop.publish, "", "jobs", b"on its way")
                await until(lambda: log.statistics().pending_bytes)
                nursery.start_soon(delete_if_unused)
                await asked.wait()
                async with shop.consume("jobs", prefetch=1):
                    released.set()
                    await until(lambda: not nursery.child_tasks)
        assert await drain(shop, "jobs") == [b"on its way"]


async def test_while_a_sync_hangs_nothing_is_confirmed_and_then_everything(
    tmp_path: Path, faults: Faults
) -> None:
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        released, hangs = threading.Event(), threading.Event()

        def hang() -> None:
            hangs.set()
            released.wait(PATIENCE_S)

        faults.before_sync = hang
        confirmed: list[int] = []

        async def publish(number: int) -> None:
            await connection.publish("", "jobs", b"%d" % number)
            confirmed.append(number)

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(publish, number)
                await trio.to_thread.run_sync(hangs.wait)
                # What hangs first may be a file made ahead; the commit comes and hangs, too.
                await until_told(connection, lambda told: told["log"]["pending_bytes"])
                assert confirmed == []
                faults.before_sync = None
                released.set()
        assert sorted(confirmed) == list(range(20))
        assert len(await drain(connection, "jobs")) == 20


async def test_who_leaves_while_a_sync_hangs_is_told_that_nobody_knows(
    tmp_path: Path, faults: Faults
) -> None:
    """Found: it waited for as long as the disk hung, whatever it had said an answer may take."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(3))
        await _settled(broker)
        released = threading.Event()
        try:
            with (
                trio.fail_after(PATIENCE_S),
                pytest.raises(BrokerLost, match="unknown whether all"),
            ):
                async with shop.consume("jobs") as deliveries:
                    batch = await deliveries.take()
                    faults.before_sync = partial(released.wait, PATIENCE_S)
                    shop._channel.timeout_s = 0.1
                    # Found: "not connected yet", behind that.
                    with pytest.raises(BrokerLost, match=r"no answer within 0\.1 s$"):
                        await shop.declare_queue("more")
                    await batch.ack()
        finally:
            faults.before_sync = None
            released.set()


async def test_while_a_sync_takes_long_small_messages_gather_at_their_publisher(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: under a load just over what it could do, each message stayed a part of its own."""
    parts: list[int] = []
    publish = Session.publish

    def counted(session: Session, batches: Sequence[Batch]) -> None:
        parts.append(sum(batch.count for batch in batches))
        publish(session, batches)

    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish("", "jobs", b"0")
        released, hangs = threading.Event(), threading.Event()

        def hang() -> None:
            hangs.set()
            released.wait(PATIENCE_S)

        faults.before_sync = hang
        monkeypatch.setattr(Session, "publish", counted)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for number in range(1, 31):
                    nursery.start_soon(connection.publish, "", "jobs", b"%d" % number)
                    await trio.testing.wait_all_tasks_blocked()  # It has left, if it was going to.
                await trio.to_thread.run_sync(hangs.wait)
                await until(lambda: len(parts) >= PARTS_UNCONFIRMED_MAX)
                assert parts == [1] * PARTS_UNCONFIRMED_MAX
                faults.before_sync = None
                released.set()
        assert parts == [*[1] * PARTS_UNCONFIRMED_MAX, 30 - PARTS_UNCONFIRMED_MAX]
        assert await drain(connection, "jobs") == numbered(31)


async def test_what_a_full_disk_had_no_room_for_is_a_gap_and_capturing_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = Volume(capacity_bytes=4 * SMALL.log.segment_bytes)
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: MemoryDisk(volume))
    config = replace(SMALL, capture_bytes=20_000)
    async with (
        serving(tmp_path, config=config) as broker, client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):  # fmt: skip
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit", patterns="t")
        await subscribed(sensors, "t")
        for size in (1 << 16, 1 << 12, 1):
            with pytest.raises(StoreFull):
                while True:
                    await shop.publish("", "jobs", bytes(size))
        for _ in range(sent := 1000):
            await sensors.publish("t", bytes(100))
        assert (await shop.statistics())["log"]["full"]
        volume.capacity_bytes *= 2

        async def all_told() -> bool:
            """A loss shows with the next message that is not lost."""
            nonlocal sent
            audit = (await shop.statistics())["streams"]["audit"]
            if audit["missed"] and audit["end"] + audit["missed"] == sent:
                return True
            await sensors.publish("t", bytes(100))
            sent += 1
            return False

        await until(all_told)


async def test_a_reader_goes_on_while_there_is_no_room_for_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: the reader ended where it stored one."""
    volume = Volume(capacity_bytes=4 * SMALL.log.segment_bytes)
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: MemoryDisk(volume))
    cursor_changes, tried = reading._cursor_changes, list[int]()

    def noted(running: RunningVhost, stream: Stream, cursor: str, offset: int) -> list[Change]:
        tried.append(offset)
        return cursor_changes(running, stream, cursor, offset)

    monkeypatch.setattr(reading, "_cursor_changes", noted)
    config = replace(SMALL, log=replace(SMALL.log, reserve_bytes=0))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(3))
        for size in (1 << 16, 1 << 12, 1):
            with pytest.raises(StoreFull):
                while True:
                    await shop.publish("", "jobs", bytes(size))
        async with shop.read("audit", start="first", cursor=LONG) as records:
            for _ in range(3):
                await take(records, 1)
                await records.store()
            await until(lambda: tried)
            volume.capacity_bytes *= 2
        assert broker.hosted("/").vhost.registry.stream("audit").cursors == {LONG: 3}
