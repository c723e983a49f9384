"""Declaring and deleting: idempotent, checked, and gone with what it belongs to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.errors import (
    BuiltIn,
    DefinitionConflict,
    ExclusiveQueue,
    InUse,
    InvalidDefinition,
    TooManyQueues,
    UnknownExchange,
    UnknownQueue,
)
from tests.brokers import (
    PROMPT,
    QUIET,
    SMALL,
    client,
    drain,
    numbered,
    pass_time,
    serving,
    take,
    until_told,
)
from tests.waiting import until


async def queues_become(shop: durable.Connection, names: set[str]) -> None:
    await until_told(shop, lambda told: set(told["queues"]) == names)


async def test_patterns_of_a_stream_are_in_no_order(tmp_path: Path) -> None:
    """Found: who gave a set of them, which has another order in the next process, met a conflict."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit", patterns=["orders.>", "bills.*"])
        await shop.declare_stream("audit", patterns=["bills.*", "orders.>"])
        told = await shop.export_definitions()
        told["streams"][0]["patterns"].reverse()
        assert await shop.import_definitions(told) == {}
        for fewer in (["orders.>"], []):
            with pytest.raises(DefinitionConflict, match=r"patterns: existing .*, requested .*"):
                await shop.declare_stream("audit", patterns=fewer)


async def test_declaring_twice_is_once_and_a_difference_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=10)
        await shop.declare_queue("jobs", max_length=10)
        with pytest.raises(DefinitionConflict) as conflict:
            await shop.declare_queue("jobs", max_length=20)
        assert list(conflict.value.differences) == ["max_length: existing 10, requested 20"]
        with pytest.raises(DefinitionConflict):
            await shop.declare_stream("jobs")
        await shop.declare_exchange("events", type="topic")
        await shop.declare_exchange("events", type="topic")
        with pytest.raises(DefinitionConflict):
            await shop.declare_exchange("events", type="fanout")
        await shop.declare_stream("audit", max_length=5)
        with pytest.raises(DefinitionConflict):
            await shop.declare_stream("audit", max_length=6)
        with pytest.raises(DefinitionConflict):
            await shop.declare_queue("audit")


async def test_what_cannot_be_declared(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(InvalidDefinition):
            await shop.declare_queue("jobs", max_length=-1)
        with pytest.raises(BuiltIn):
            await shop.declare_exchange("amq.direct", type="fanout")
        with pytest.raises(BuiltIn):
            await shop.delete_exchange("amq.direct")
        with pytest.raises(UnknownQueue):
            await shop.bind("amq.direct", "nowhere")
        with pytest.raises(UnknownExchange):
            await shop.bind("nowhere", "nowhere")
        with pytest.raises(UnknownQueue):
            await shop.purge_queue("nowhere")
        assert await shop.unbind("amq.direct", "nowhere") is False
        with pytest.raises(BuiltIn):
            await shop.unbind("", "nowhere")
        assert await shop.delete_exchange("nowhere") is False
        assert await shop.delete_stream("nowhere") is False
        assert await shop.delete_queue("nowhere") is None
        await shop.declare_exchange("events")
        await shop.declare_stream("audit")
        assert await shop.delete_exchange("events") is True
        assert await shop.delete_stream("audit") is True


async def test_many_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(shop.declare_queue, f"q{number % 150}")
        assert len((await shop.statistics())["queues"]) == 150


async def test_delete_if_empty_and_if_unused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(3))
        with pytest.raises(InUse):
            await shop.delete_queue("jobs", if_empty=True)
        async with shop.consume("jobs", prefetch=1) as deliveries:
            await take(deliveries, 1)
            with pytest.raises(InUse):
                await shop.delete_queue("jobs", if_unused=True)
        await drain(shop, "jobs")
        assert await shop.delete_queue("jobs", if_empty=True) == 0
        await queues_become(shop, set())
        await shop.declare_exchange("events")
        await shop.declare_queue("jobs")
        await shop.bind("events", "jobs")
        with pytest.raises(InUse):
            await shop.delete_exchange("events", if_unused=True)
        assert await shop.unbind("events", "jobs", "other") is False
        assert await shop.unbind("events", "jobs") is True
        await shop.delete_exchange("events", if_unused=True)


async def test_what_a_consumer_left_is_ready_when_its_block_has_ended(tmp_path: Path) -> None:
    """Whatever is asked next, over another tunnel."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(5000))
        for _ in range(20):
            async with shop.consume("jobs", prefetch=0) as deliveries:
                await take(deliveries, 1)
            jobs = (await shop.statistics())["queues"]["jobs"]
            assert (jobs["ready"], jobs["unacked"], jobs["consumers"]) == (5000, 0, 0)


async def test_purge_leaves_what_is_unacked(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(5))
        async with shop.consume("jobs", prefetch=2) as deliveries:
            await take(deliveries, 2)
            assert await shop.purge_queue("jobs") == 3
        assert await drain(shop, "jobs") == numbered(2)
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == []


async def test_exclusive_queues_end_with_their_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with client(broker) as owner:
            await owner.declare_queue("mine", exclusive=True)
            await owner.bind("amq.direct", "mine", "here")
            there = {"exchange": "amq.direct", "destination": "mine", "key": "there"}
            await owner.publish("amq.direct", "here", b"x")
            assert await drain(owner, "mine") == [b"x"]
            for refused in (
                shop.declare_queue("mine", exclusive=True), shop.purge_queue("mine"),
                shop.delete_queue("mine"), shop.bind("amq.direct", "mine", "there"),
                shop.unbind("amq.direct", "mine", "here"),
                shop.import_definitions({"version": 1, "vhost": "/", "bindings": [there]}),
            ):  # fmt: skip
                with pytest.raises(ExclusiveQueue):
                    await refused
            with pytest.raises(ExclusiveQueue):
                async with shop.consume("mine"):
                    pass
            assert [one["key"] for one in await shop.bindings()] == ["here"]
            assert await owner.unbind("amq.direct", "mine", "here")
        await queues_become(shop, set())


async def test_a_name_that_was_ours_is_not_for_ever(tmp_path: Path) -> None:
    """Found: whoever had owned a queue could use the next one of that name, and took it along."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with client(broker) as owner:
            await owner.declare_queue("mine", exclusive=True, auto_delete=True)
            async with owner.consume("mine"):
                pass
            await queues_become(shop, set())
            await shop.declare_queue("mine", exclusive=True)
            with pytest.raises(ExclusiveQueue):
                await owner.purge_queue("mine")
        await shop.publish("", "mine", b"x")
        assert await drain(shop, "mine") == [b"x"]


async def test_auto_delete_goes_with_the_last_consumer(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", auto_delete=True)
        async with shop.consume("jobs"):
            async with shop.consume("jobs"):
                pass
            await shop.publish("", "jobs", b"x", mandatory=True)
        await queues_become(shop, set())
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert not (await shop.statistics())["queues"]


async def test_memory_queues_vanish_with_the_broker(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("memory", durability="memory")
        await shop.declare_queue("disk")
        for queue in ("memory", "disk"):
            await shop.bind("amq.fanout", queue)
        await shop.publish_many("amq.fanout", "", numbered(3))
        assert (await shop.statistics())["queues"]["memory"]["durability"] == "memory"
        assert await drain(shop, "memory") == numbered(3)
        await shop.publish_many("amq.fanout", "", numbered(3, 3))
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert set((await shop.statistics())["queues"]) == {"disk"}
        assert await drain(shop, "disk") == numbered(6)


async def test_what_is_deleted_at_once_was_declared(tmp_path: Path) -> None:
    """Found: who declared it was told that there is none."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        for _ in range(20):  # Which comes first is a matter of chance.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shop.declare_queue, "jobs")
                nursery.start_soon(shop.delete_queue, "jobs")
                nursery.start_soon(shop.declare_stream, "audit")
                nursery.start_soon(shop.delete_stream, "audit")


async def test_nonsense_in_calls_is_refused_and_nothing_of_it_is_logged(tmp_path: Path) -> None:
    """Found: an unhashable cluster was in the log before it was found to be none."""
    nonsense: list[Any] = [
        None,
        5,
        b"x",
        [],
        {},
        ["x"],
        {"name": []},
        {"name": "x", "max_length": "many"},
    ]
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        call = shop._channel.call
        end = broker.hosted("/").log.end
        for value in nonsense:
            for operation in (
                "declare_queue", "declare_exchange", "declare_stream", "bind", "unbind",
                "set_permission",
            ):  # fmt: skip
                with pytest.raises(durable.DurableError):
                    await call(operation, definition=value)
            with pytest.raises(durable.DurableError):
                await call("clear_permission", cluster=value)
            for operation in ("delete_queue", "purge_queue", "delete_exchange", "delete_stream"):
                with suppress(durable.DurableError):
                    await call(operation, name=value)
        for operation in ("nothing", "__init__", "statistics"):
            with pytest.raises(durable.DurableError):
                await call(operation, other=1)
        assert broker.hosted("/").log.end == end
        await shop.declare_queue("jobs")


async def test_more_queues_than_may_be_are_refused_with_their_number(tmp_path: Path) -> None:
    config = durable.BrokerConfig(log=SMALL.log, queues_max=2)
    async with serving(tmp_path, config=config) as broker, client(broker) as connection:
        await connection.declare_queue("one")
        await connection.declare_stream("two")
        with pytest.raises(TooManyQueues, match="2 queues and streams"):
            await connection.declare_queue("three")
        await connection.declare_queue("one")
        await connection.delete_stream("two")
        await connection.declare_queue("three")


async def test_a_queue_that_nobody_uses_expires_with_what_is_in_it(tmp_path: Path) -> None:
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await shop.declare_queue("graves")
        for name in ("idle", "used"):
            await shop.declare_queue(
                name, expires_s=60, dead_letter_exchange="", dead_letter_routing_key="graves"
            )
        await shop.publish("", "idle", b"forgotten")
        async with shop.consume("used"):
            pass_time(broker, 61)
            await queues_become(shop, {"graves", "used"})
            # Once this one has gone, too, the used one has been looked at again.
            await shop.declare_queue("witness", expires_s=60)
            pass_time(broker, 61)
            await queues_become(shop, {"graves", "used"})
        queue = broker.hosted("/").vhost.registry.queue("used")
        await until(lambda: not queue.consumers)
        pass_time(broker, 61)
        await queues_become(shop, {"graves"})
        assert (await shop.statistics())["queues"]["graves"]["ready"] == 0, "as in RabbitMQ"
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues_become(shop, {"graves"})


async def test_the_time_in_which_nobody_uses_a_queue_begins_when_it_is_declared(
    tmp_path: Path,
) -> None:
    """Found: it began in 1970, and a queue ended with the second in which it was made."""
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await shop.declare_queue("witness", expires_s=30)
        pass_time(broker, 31)
        await shop.declare_queue("new", expires_s=60)
        await queues_become(shop, {"new"})
        await shop.declare_queue("witness", expires_s=30)
        pass_time(broker, 31)
        await queues_become(shop, {"new"})


async def test_declaring_again_is_using_a_queue(tmp_path: Path) -> None:
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        for _ in range(4):
            await shop.declare_queue("kept", expires_s=60)
            await shop.publish("", "kept", b"one more")
            await shop.declare_queue("witness", expires_s=30)
            pass_time(broker, 40)
            await queues_become(shop, {"kept"})
        ready = (await shop.statistics())["queues"]["kept"]["ready"]
        assert ready == 4, "else it was made again"
        pass_time(broker, 61)
        await queues_become(shop, set())
