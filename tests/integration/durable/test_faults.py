"""A disk that fails or hangs under a running broker: what its clients are told."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from durable.broker.publishing import _Session as Session
from durable.errors import StoreFailed
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import Volume
from tests.brokers import client, drain, numbered, serving
from tests.nodes import PATIENCE_S


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Of the disk that brokers open instead of this machine's."""
    faults, volume = Faults(), Volume()
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: FaultyDisk(volume, faults))
    return faults


async def test_after_a_failed_sync_nothing_is_confirmed_and_everybody_is_told(
    tmp_path: Path, faults: Faults
) -> None:
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish("", "jobs", b"before")
        faults.sync_error_at = faults.syncs + 1
        with trio.fail_after(PATIENCE_S):
            with pytest.raises(StoreFailed, match="restart the broker"):
                await connection.publish("", "jobs", b"lost")
            with pytest.raises(StoreFailed, match="restart the broker"):
                await connection.publish("", "jobs", b"refused")
            with pytest.raises(StoreFailed):
                await connection.declare_queue("more")
            statistics = await connection.statistics()
        assert "failed" in statistics["log"]["failure"]


async def test_a_session_whose_tasks_all_meet_a_failed_disk_ends_with_one_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by CI: two of them in one group were a crash of the handler, with a stack trace."""

    def fail(session: Session, batches: object) -> None:
        session.fail(StoreFailed("no disk"))
        raise StoreFailed("no disk")

    monkeypatch.setattr(Session, "publish", fail)
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed, match="no disk"):
            await connection.publish("", "jobs", b"lost")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_was_confirmed_before_a_failed_sync_is_there_after_a_restart(
    tmp_path: Path, faults: Faults
) -> None:
    async with serving(tmp_path) as broker, client(broker) as connection:
        await connection.declare_queue("jobs")
        await connection.publish_many("", "jobs", numbered(100))
        faults.sync_error_at = faults.syncs + 1
        with trio.fail_after(PATIENCE_S), pytest.raises(StoreFailed):
            await connection.publish("", "jobs", b"lost")
    faults.sync_error_at = None
    async with serving(tmp_path) as broker, client(broker) as connection:
        found = await drain(connection, "jobs")
    assert found[:100] == numbered(100)
    assert found[100:] in ([], [b"lost"]), "unknown is unknown"


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
                while not (await connection.statistics())["log"]["pending_bytes"]:
                    await trio.sleep(0.001)
                assert confirmed == []
                faults.before_sync = None
                released.set()
        assert sorted(confirmed) == list(range(20))
        assert len(await drain(connection, "jobs")) == 20
