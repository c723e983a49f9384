"""What became of settlements whose connection ended, and of messages that came by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import durable
from durable.client.connection import Connection
from durable.client.deliveries import Deliveries
from durable.client.delivery import Delivery
from durable.errors import AccessRefused, BrokerLost, ConsumerCancelled
from durable.protocol.parts import SETTLED, encode_number
from tests.brokers import at, client, drain, numbered, payloads, serving, shop_at, take
from tests.nodes import free_ports
from tests.waiting import PATIENCE_S, until


async def handed_ten(shop: Connection) -> tuple[Deliveries, list[Delivery]]:
    """A consumer, entered, and all that there is in its queue."""
    await shop.declare_queue("jobs")
    await shop.publish_many("", "jobs", numbered(10))
    deliveries = await shop.consume("jobs").__aenter__()
    return deliveries, await take(deliveries, 10)


async def test_what_went_down_with_one_connection_is_not_synced_by_the_next(
    tmp_path: Path,
) -> None:
    """Found: only the first `synced` was told. What was acked of the old connection behind it passed
    for synced with what the new one delivered, and came back."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            deliveries, early = await handed_ten(shop)
        for one in early[:4]:
            await one.ack()
        with pytest.raises(BrokerLost, match="up to 4 messages may be delivered again") as lost:
            await deliveries.synced()
        assert lost.value.unsettled == 4
        for one in early[8:]:
            await one.ack()
        async with serving(tmp_path, **at(port)):
            for one in await take(deliveries, 2):
                await one.ack()
            with pytest.raises(BrokerLost) as lost:
                await deliveries.synced()
            assert lost.value.unsettled == 2
            await deliveries.synced()  # It is said once.
            await deliveries.__aexit__(None, None, None)
            assert await drain(shop, "jobs") == numbered(8, 2)


async def test_messages_that_went_down_unsettled_are_counted_once(tmp_path: Path) -> None:
    """With `multiple`, those that were settled before are not counted, nor sent, again."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            deliveries, found = await handed_ten(shop)
            await found[4].ack(multiple=True)
            await deliveries.synced()
            await found[4].ack(multiple=True)
            await found[2].ack()
            await deliveries.synced()
        await found[6].ack(multiple=True)
        await found[7].nack(multiple=True)
        with pytest.raises(BrokerLost) as lost:
            await deliveries.__aexit__(None, None, None)
        assert lost.value.unsettled == 3


@pytest.mark.parametrize("by", ["synced", "leaving", "iterating"])
async def test_settlements_on_their_way_as_the_consumer_is_ended_are_told_of(
    tmp_path: Path, by: str
) -> None:
    """Found: the error told of none, and as it left the block, nothing told of them later."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        deliveries, found = await handed_ten(shop)
        await other.delete_queue("jobs")
        for one in found[:3]:  # The consumer has not read yet that it is ended.
            await one.ack()
        with pytest.raises(ConsumerCancelled, match="the queue was deleted") as lost:
            if by == "iterating":
                await deliveries.take()
            elif by == "leaving":
                await deliveries.__aexit__(None, None, None)
            else:
                await deliveries.synced()
        assert lost.value.unsettled == 3
        if by == "iterating":  # Else the block could end without an exception.
            with pytest.raises(ConsumerCancelled):
                await deliveries.synced()
        await deliveries.synced()  # It is said once.


async def test_settlements_on_their_way_as_permission_is_lost_are_told_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker, "crm") as crm:
        deliveries, found = await handed_ten(shop)
        await crm.set_permission("crm", configure=".*", read=".*")
        for one in found[:3]:  # The consumer has not read yet that it is ended.
            await one.ack()
        with pytest.raises(AccessRefused) as lost:
            await deliveries.synced()
        assert lost.value.__notes__ == ["3 messages that were settled may come again"]
        await deliveries.synced()  # It is said once.


@pytest.mark.parametrize("by", ["synced", "iterating"])
async def test_settlements_on_their_way_as_the_tunnel_ends_without_a_reason_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Found: the error told of none."""
    nothing = encode_number(SETTLED, 0)
    monkeypatch.setattr("durable.broker.consuming.encode_ended", lambda why: nothing)
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        deliveries, found = await handed_ten(shop)
        await other.delete_queue("jobs")
        for one in found[:3]:
            await one.ack()
        if by == "iterating":
            with pytest.raises(ConsumerCancelled) as lost:
                await deliveries.take()
            assert lost.value.unsettled == 3
        with pytest.raises(ConsumerCancelled, match="ended the tunnel") as lost:
            await deliveries.synced()
        assert lost.value.unsettled == 3
        await deliveries.synced()  # It is said once.


async def test_why_a_consumer_was_ended_is_said_each_time(tmp_path: Path) -> None:
    """Found: the second error said only that the tunnel had ended."""
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        deliveries, _ = await handed_ten(shop)
        await other.delete_queue("jobs")
        for _ in range(2):
            with pytest.raises(ConsumerCancelled, match="the queue was deleted"):
                await deliveries.take()


@pytest.mark.parametrize("by", ["message", "batch"])
async def test_what_the_next_connection_delivers_again_is_not_handed_over_before(
    tmp_path: Path, by: str
) -> None:
    """Found: all that had come was iterated first, and processed in vain."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            for first in (0, 5):
                await shop.publish_many("", "jobs", numbered(5, first))
            deliveries = await shop.consume("jobs").__aenter__()
            if by == "message":
                await take(deliveries, 2)
            else:
                await deliveries.take()
            await until(lambda: deliveries._batches)
        await until(lambda: not joined.members("broker"))
        async with serving(tmp_path, **at(port)):
            if by == "message":
                again = await take(deliveries, 10)
            else:
                again = [one for _ in range(2) for one in await deliveries.take()]
            assert payloads(again) == numbered(10)
            await deliveries.__aexit__(None, None, None)


async def test_what_came_settled_is_handed_over_after_its_connection(tmp_path: Path) -> None:
    """With `no_ack` nothing comes again."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            await shop.publish_many("", "jobs", numbered(10))
            deliveries = await shop.consume("jobs", no_ack=True).__aenter__()
            await take(deliveries, 2)
        await until(lambda: not joined.members("broker"))
        assert payloads(await take(deliveries, 8)) == numbered(8, 2)
        await deliveries.__aexit__(None, None, None)
