"""Definitions of a whole vhost, imported: all of it or nothing, as of the moment it is written."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from durable.definition_forms import check_together, export_definitions
from durable.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import (
    DefinitionConflict,
    InvalidDefinition,
    RecordTooLarge,
    TooManyQueues,
)
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import Volume
from tests.brokers import SMALL, client, node_of, serving
from tests.waiting import PATIENCE_S, until

PLAIN = export_definitions(
    Definitions(
        exchanges=(ExchangeDefinition(name="events", type="topic"),),
        queues=(QueueDefinition(name="jobs"), QueueDefinition(name="news", durability="memory")),
        streams=(StreamDefinition(name="audit", patterns=("orders.>",)),),
        bindings=(
            BindingDefinition(exchange="events", destination="jobs", key="#"),
            BindingDefinition(exchange="events", destination="news", key="#"),
        ),
    ),
    "/",
)


async def test_what_lasts_is_there_after_a_restart_and_what_is_in_memory_is_not(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        new = {"exchange": 1, "queue": 2, "stream": 1, "binding": 2}
        assert await shop.import_definitions(PLAIN) == new
        await shop.publish("events", "any", b"routed to both")
        found = await shop.statistics()
        assert [one["ready"] for one in found["queues"].values()] == [1, 1]
        assert await shop.import_definitions(PLAIN) == {}
    async with serving(tmp_path) as broker, client(broker) as shop:
        again = await shop.export_definitions()
        assert [one["name"] for one in again["queues"]] == ["jobs"]
        assert [one["destination"] for one in again["bindings"]] == ["jobs"]
        assert await shop.import_definitions(PLAIN) == {"queue": 1, "binding": 1}


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "queues",
    [
        [{"name": "jobs", "max_length": 10**30}], [{"name": "\ud800"}], [{"name": object()}],
        [nested(500)], nested(900), [{"name": nested(100_000)}], 5,
    ],
)  # fmt: skip
async def test_what_json_can_say_and_nobody_can_declare_is_refused_by_name(
    tmp_path: Path, queues: Any
) -> None:
    """Found: an OverflowError, a UnicodeEncodeError; or a session that ended, and the call again."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        session = await shop._channel.connected()
        for wrong in ({**PLAIN, "queues": queues}, queues):
            with pytest.raises(InvalidDefinition):
                await shop.import_definitions(wrong)
        assert session == await shop._channel.connected()


async def test_a_stream_that_was_imported_captures(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)

        async def captured() -> int:
            await node_of(broker).publish("orders.eu", b"captured once somebody listens")
            return int((await shop.statistics())["streams"]["audit"]["end"])

        await until(captured)


async def test_more_queues_than_there_may_be_are_refused_altogether(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, config=replace(SMALL, queues_max=2)) as broker,
        client(broker) as shop,
    ):
        with pytest.raises(TooManyQueues):
            await shop.import_definitions(PLAIN)
        assert (await shop.statistics())["queues"] == {}


async def test_what_was_declared_while_it_waited_for_room_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it was checked once, and then replaced queues declared since."""
    faults, volume = Faults(), Volume()
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: FaultyDisk(volume, faults))
    config = replace(SMALL, log=replace(SMALL.log, pending_bytes_max=1))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("first")
        released = threading.Event()
        faults.before_sync = lambda: released.wait(PATIENCE_S)
        log, checked = broker.hosted("/").log, trio.Event()

        def check(*args: Any) -> None:
            checked.set()
            check_together(*args)

        monkeypatch.setattr("durable.broker.defining.check_together", check)

        async def declare() -> None:
            await shop.declare_queue("second")

        async def take_in() -> None:
            with pytest.raises(DefinitionConflict, match="jobs"):
                await shop.import_definitions(PLAIN)

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(declare)
                await until(lambda: log.statistics().pending_bytes)
                nursery.start_soon(take_in)
                await checked.wait()
                await shop.declare_queue("jobs", durability="memory")  # It needs no room.
                released.set()
        assert set((await shop.statistics())["queues"]) == {"first", "second", "jobs"}


async def test_more_than_a_segment_takes_is_refused_and_the_connection_goes_on(
    tmp_path: Path,
) -> None:
    """Found: it ended the connection for good, as if the client did not speak our protocol."""
    segments = replace(SMALL.log, segment_bytes=1 << 16, reserve_bytes=1 << 12)
    many = Definitions(queues=tuple(QueueDefinition(name=f"{n:0100}") for n in range(300)))
    async with (
        serving(tmp_path, config=replace(SMALL, log=segments)) as broker, client(broker) as shop,
    ):  # fmt: skip
        with pytest.raises(RecordTooLarge) as caught:
            await shop.import_definitions(export_definitions(many, "/"))
        assert caught.value.size_bytes > caught.value.limit_bytes
        assert await shop.import_definitions(PLAIN)
        assert "jobs" in (await shop.statistics())["queues"]
