"""What goes back to a queue without counting as a return: what nobody was handed, and what is released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.errors import InvalidDefinition
from tests.brokers import client, drain, numbered, payloads, serving, take, until_told


async def left(shop: durable.Connection, queue: str, ready: int) -> None:
    """Wait until whoever consumed is gone, and so much is there."""
    await until_told(
        shop,
        lambda told: (
            (told["queues"][queue]["consumers"], told["queues"][queue]["ready"]) == (0, ready)
        ),
    )


async def returns(shop: durable.Connection, queue: str, count: int) -> list[int]:
    """How often each message came back, without changing that."""
    async with shop.consume(queue, peek=True) as deliveries:
        return [one.redelivered for one in await take(deliveries, count)]


async def test_who_takes_one_and_leaves_costs_the_others_nothing(tmp_path: Path) -> None:
    """Found: all that was prefetched counted as returned, and at the fourth visit 96 were dropped."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=3)
        await shop.publish_many("", "jobs", numbered(100))
        for visit in range(6):
            async with shop.consume("jobs") as deliveries:
                (one,) = await take(deliveries, 1)
                assert (one.payload, one.redelivered) == (b"%d" % visit, 0)
                await one.ack()
        assert await returns(shop, "jobs", 94) == [0] * 94
        assert await drain(shop, "jobs") == numbered(94, 6)


@pytest.mark.parametrize("error", [KeyError, trio.Cancelled])
async def test_a_block_that_ends_by_an_error_counts_what_it_was_handed_and_acks_what_it_did(
    tmp_path: Path, error: type[BaseException]
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        with trio.CancelScope() as scope:
            try:
                async with shop.consume("jobs") as deliveries:
                    found = await take(deliveries, 4)
                    await found[1].ack()
                    if error is KeyError:
                        raise KeyError
                    scope.cancel()
                    await trio.sleep_forever()
            except KeyError:
                pass
        await left(shop, "jobs", 9)
        assert await returns(shop, "jobs", 9) == [1] * 3 + [0] * 6


async def test_of_a_batch_all_was_handed_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for first in range(0, 30, 10):
            await shop.publish_many("", "jobs", numbered(10, first))
        async with shop.consume("jobs") as deliveries:
            async for batch in deliveries.batches():
                assert batch.payloads == numbered(10)
                break
        assert await returns(shop, "jobs", 30) == [1] * 10 + [0] * 20


async def test_what_is_released_is_ready_again_in_its_place_and_not_counted(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=1)
        await shop.publish_many("", "jobs", numbered(6))
        async with shop.consume("jobs", prefetch=6) as deliveries:
            for release in RELEASES:
                found = await take(deliveries, 6)
                assert payloads(found) == numbered(6)
                assert {one.redelivered for one in found} == {0}
                await release(found)
            batch = await deliveries.take()
            await batch.release()
            found = await take(deliveries, 6)
            assert payloads(found) == numbered(6)
            await found[5].ack(multiple=True)
        assert await drain(shop, "jobs") == []


async def one_by_one(found: list[Any]) -> None:
    for one in found:
        await one.release()


RELEASES: list[Callable[[list[Any]], Any]] = [
    one_by_one, lambda found: found[5].release(multiple=True),
]  # fmt: skip


async def test_a_look_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=1)
        await shop.publish_many("", "jobs", numbered(5))
        for _ in range(3):
            assert await returns(shop, "jobs", 5) == [0] * 5
        await left(shop, "jobs", 5)
        assert await drain(shop, "jobs") == numbered(5)


async def test_of_a_connection_that_breaks_all_counts(tmp_path: Path) -> None:
    """Nobody can know what its user had: a message that kills its consumers must not go on for ever."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(10))
        async with shop.consume("jobs", prefetch=8) as deliveries:
            await take(deliveries, 1)
            assert deliveries._tunnel is not None
            deliveries._tunnel.abort("killed")
            await left(shop, "jobs", 10)
        assert await returns(shop, "jobs", 10) == [1] * 8 + [0] * 2


async def test_of_a_look_that_breaks_nothing_counts(tmp_path: Path) -> None:
    """Found: of one that was killed all counted, and two emptied a queue with a `delivery_limit` of 1."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=1)
        await shop.publish_many("", "jobs", numbered(10))
        for _ in range(2):
            async with shop.consume("jobs", peek=True) as deliveries:
                await take(deliveries, 1)
                assert deliveries._tunnel is not None
                deliveries._tunnel.abort("killed")
                await left(shop, "jobs", 10)
        assert await returns(shop, "jobs", 10) == [0] * 10


async def test_a_broker_that_stops_in_order_counts_nothing(tmp_path: Path) -> None:
    """Found: each stop counted as a return of all that was prefetched, until `delivery_limit` dropped it."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=1)
        await shop.publish_many("", "jobs", numbered(10))
    for _ in range(2):
        async with trio.open_nursery() as nursery:

            async def consume(
                broker: durable.Broker, *, task_status: trio.TaskStatus[None]
            ) -> None:
                async with client(broker) as shop, shop.consume("jobs") as deliveries:
                    await take(deliveries, 1)
                    task_status.started()
                    await trio.sleep_forever()

            async with serving(tmp_path) as broker:
                await nursery.start(consume, broker)
            nursery.cancel_scope.cancel()
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await returns(shop, "jobs", 10) == [0] * 10


@pytest.mark.parametrize("handed", [0, 10])
async def test_who_leaves_is_not_sent_again_what_it_gives_back(tmp_path: Path, handed: int) -> None:
    """Found: it was, and `delivered` said twice as many."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(100))
        async with shop.consume("jobs", prefetch=50) as deliveries:
            await take(deliveries, handed)
            await until_told(shop, lambda told: told["queues"]["jobs"]["unacked"] == 50)
        await left(shop, "jobs", 100)
        assert (await shop.statistics())["queues"]["jobs"]["delivered"] == 50


async def test_looking_is_not_consuming(tmp_path: Path) -> None:
    """Found: a queue that goes with its last consumer went when somebody had looked at it."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", auto_delete=True)
        await shop.publish("", "jobs", b"precious")
        for _ in range(2):
            assert await returns(shop, "jobs", 1) == [0]
        async with shop.consume("jobs", peek=True) as looking:
            await take(looking, 1)
            async with shop.consume("jobs"):
                pass
            with pytest.raises(durable.ConsumerCancelled):
                await take(looking, 1)
        assert "jobs" not in (await shop.statistics())["queues"]


async def test_parts_of_a_batch_are_settled_as_ranges(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("graves")
        await shop.declare_queue("jobs", dead_letter_exchange="", dead_letter_routing_key="graves")
        await shop.publish_many("", "jobs", numbered(20))
        async with shop.consume("jobs") as deliveries:
            batch = await deliveries.take()
            assert batch.payloads == numbered(20)
            await batch.ack(2, 5)
            await batch.reject(0, 2)
            await batch.release(-3)
            await batch.nack(5, 10)
            await batch.nack(10, 12, requeue=False)
            await batch.ack(4, 3)
            await batch.ack(12, 17)
            await batch.ack(12, 100)  # Those that are settled stay what they are.
            await deliveries.synced()
        await until_told(shop, lambda told: told["queues"]["graves"]["ready"] == 4)
        assert await returns(shop, "jobs", 8) == [1] * 5 + [0] * 3
        assert await drain(shop, "jobs") == numbered(5, 5) + numbered(3, 17)
        assert sorted(await drain(shop, "graves"), key=int) == [*numbered(2), *numbered(2, 10)]


async def test_a_nack_says_whether_it_comes_again(tmp_path: Path) -> None:
    """Found: of anything else than True the message was dropped."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"x")
        async with shop.consume("jobs") as deliveries:
            (one,) = await take(deliveries, 1)
            with pytest.raises(InvalidDefinition, match="requeue"):
                await one.nack(requeue=None)  # type: ignore[arg-type]
            await one.nack()
        assert await returns(shop, "jobs", 1) == [1]
