"""Messages that leave a queue for another one: why, how often, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable.client.connection import Connection
from durable.client.delivery import Delivery
from tests.brokers import client, drain, serving, take, until_told
from tests.waiting import LOOK_S, until

SOON_S = 0.05
LOOKS = round(20 * SOON_S / LOOK_S)


def story(delivery: Delivery) -> list[tuple[str, str, int]]:
    """The latest first."""
    return [(one.queue, one.reason, one.count) for one in delivery.deaths]


async def next_of(broker: Connection, queue: str) -> Delivery:
    """Taken, and acknowledged."""
    async with broker.consume(queue) as deliveries:
        (found,) = await take(deliveries, 1)
        await found.ack()
    return found


async def ready(broker: Connection) -> dict[str, int]:
    found = await broker.statistics()
    return {name: queue["ready"] for name, queue in found["queues"].items()}


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("rejected", {}),
        ("expired", {"ttl_s": SOON_S}),
        ("maxlen", {"max_length": 1}),
        ("delivery_limit", {"delivery_limit": 1}),
    ],
)
async def test_a_dead_letter_says_where_and_why_it_died(
    tmp_path: Path, reason: str, settings: dict[str, Any]
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("graves")
        await shop.declare_queue(
            "jobs", dead_letter_exchange="", dead_letter_routing_key="graves", **settings
        )
        await shop.publish("", "jobs", b"first", headers={"who": "me"})
        if reason == "maxlen":
            await shop.publish("", "jobs", b"second")
        if reason in ("rejected", "delivery_limit"):
            async with shop.consume("jobs") as deliveries:
                while not (await ready(shop))["graves"]:
                    (one,) = await take(deliveries, 1)
                    await (one.reject() if reason == "rejected" else one.nack())
                    if reason == "rejected" or one.redelivered:
                        break
        found = await next_of(shop, "graves")
        assert (found.payload, found.headers["who"]) == (b"first", "me")
        assert story(found) == [("jobs", reason, 1)]
        assert (found.deaths[0].exchange, found.deaths[0].keys) == ("", ("jobs",))


async def declare_round(shop: Connection, **settings: Any) -> None:
    """What dies in `jobs` waits in `later`, and comes back."""
    await shop.declare_queue(
        "jobs", dead_letter_exchange="", dead_letter_routing_key="later", **settings
    )
    await shop.declare_queue(
        "later", ttl_s=SOON_S, dead_letter_exchange="", dead_letter_routing_key="jobs"
    )


async def test_what_is_rejected_may_go_round_and_counts_how_often(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await declare_round(shop)
        await shop.publish("", "jobs", b"hard")
        async with shop.consume("jobs") as deliveries:
            for turn in range(3):
                (one,) = await take(deliveries, 1)
                assert story(one) == (
                    [("later", "expired", turn), ("jobs", "rejected", turn)] if turn else []
                )
                await one.reject()
    async with serving(tmp_path) as broker, client(broker) as shop:
        found = await next_of(shop, "jobs")
        assert story(found) == [("later", "expired", 3), ("jobs", "rejected", 3)], "after a restart"


async def test_what_only_time_moves_ends_where_it_would_go_round(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await declare_round(shop, ttl_s=SOON_S)
        await shop.publish("", "jobs", b"tired")
        gone = 0

        async def is_gone() -> bool:
            """On its way from one to the other it is in neither."""
            nonlocal gone
            gone = 0 if sum((await ready(shop)).values()) else gone + 1
            return gone == LOOKS

        await until(is_gone)


async def test_a_dead_letter_whose_exchange_is_not_there_is_counted(tmp_path: Path) -> None:
    """Found: it was gone, and no number said so."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", dead_letter_exchange="typo", max_length=1)
        await shop.publish_many("", "jobs", [b"1", b"2", b"3"])
        await until_told(shop, lambda told: told["intake"]["dropped"] == 2)
        assert (await next_of(shop, "jobs")).payload == b"3"


async def test_what_comes_back_to_a_full_queue_is_dead_at_once(tmp_path: Path) -> None:
    """Not with the next message, which may never come."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("graves")
        await shop.declare_queue(
            "jobs", max_length=2, dead_letter_exchange="", dead_letter_routing_key="graves"
        )
        await shop.publish_many("", "jobs", [b"1", b"2"])
        async with shop.consume("jobs", prefetch=2) as deliveries:
            await take(deliveries, 2)
            await shop.publish_many("", "jobs", [b"3", b"4"])
        await until_told(shop, lambda told: told["queues"]["graves"]["ready"] == 2)
        assert await drain(shop, "jobs") == [b"3", b"4"]
        assert story(await next_of(shop, "graves")) == [("jobs", "maxlen", 1)]


async def test_a_dead_letter_keeps_its_priority(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("graves", max_priority=9)
        await shop.declare_queue(
            "jobs", max_length=1, dead_letter_exchange="", dead_letter_routing_key="graves"
        )
        for priority in (1, 7, 5, 0):
            await shop.publish("", "jobs", b"%d" % priority, priority=priority)
        await until_told(shop, lambda told: told["queues"]["graves"]["ready"] == 3)
        assert await drain(shop, "graves") == [b"7", b"5", b"1"]


async def test_what_a_full_queue_refuses_of_the_dead_is_counted(tmp_path: Path) -> None:
    """Nobody is there to be told, as in RabbitMQ."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("graves", max_length=1, overflow="reject-publish")
        await shop.declare_queue(
            "jobs", max_length=1, dead_letter_exchange="", dead_letter_routing_key="graves"
        )
        await shop.publish_many("", "jobs", [b"1", b"2", b"3", b"4"])
        await until_told(shop, lambda told: told["intake"]["refused"] == 2)
        assert await drain(shop, "graves") == [b"1"]
        assert await drain(shop, "jobs") == [b"4"]
