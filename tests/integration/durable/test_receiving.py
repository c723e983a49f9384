"""Who may receive from a consumer or a reader: one task at a time, within its block."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from durable.client.feed import Feed
from tests.brokers import client, numbered, payloads, serving, take, until_told


async def test_two_tasks_that_receive_at_once_are_told(tmp_path: Path) -> None:
    """Found: what one had begun to hand out was gone when a batch came to the other, until the block ended."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        feeds: list[Feed] = [shop.consume("jobs"), shop.read("audit")]
        for feed, name in zip(feeds, ("jobs", "audit"), strict=True):
            async with feed, trio.open_nursery() as nursery:
                nursery.start_soon(feed.take)
                await trio.testing.wait_all_tasks_blocked()
                for another in (feed.take, feed.__anext__):
                    with pytest.raises(RuntimeError, match="two tasks receive at once"):
                        await another()
                nursery.cancel_scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
            async with feed:
                await shop.publish_many("", name, numbered(3))
                assert [(await anext(feed)).payload for _ in range(3)] == numbered(3)


async def test_who_syncs_while_another_task_receives_is_told(tmp_path: Path) -> None:
    """Found: it took in what the other one waited for, which went on waiting."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(2))
        async with shop.consume("jobs", prefetch=1) as deliveries:
            (first,) = await take(deliveries, 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(deliveries.take)
                await trio.testing.wait_all_tasks_blocked()
                await first.ack()
                with pytest.raises(RuntimeError, match="two tasks receive at once"):
                    await deliveries.synced()
                nursery.cancel_scope.cancel()
            await deliveries.synced()


async def test_a_block_that_is_entered_within_itself_is_refused(tmp_path: Path) -> None:
    """Found: the first tunnel stayed open for as long as the node, and kept its prefetch."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"1")
        deliveries = shop.consume("jobs")
        async with deliveries:
            with pytest.raises(RuntimeError, match=r"entered twice.*broker\.consume"):
                await deliveries.__aenter__()
        await until_told(shop, lambda told: told["queues"]["jobs"]["consumers"] == 0)
        async with deliveries:
            assert payloads(await take(deliveries, 1)) == [b"1"]


async def test_messages_of_a_batch_that_was_begun_come_before_the_next_batch(
    tmp_path: Path,
) -> None:
    """Found: they came after it, and a cursor stored in between passed over them."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        for start in (0, 3):
            await shop.publish_many("", "audit", numbered(3, start))
        async with shop.read("audit", start="first") as records:
            assert (await anext(records)).payload == b"0"
            with pytest.raises(RuntimeError, match="are left"):
                await records.take()
            assert payloads(await take(records, 2)) == [b"1", b"2"]
            assert (await records.take()).payloads == [b"3", b"4", b"5"]
