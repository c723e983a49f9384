"""What a broker counts, told to its clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.brokers import client, numbered, pass_time, serving, take

TOTALS = ("published", "delivered", "acked")


async def test_totals_rates_ages_and_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.broker.upkeep.RATES_S", 0.01)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.publish_many("", "jobs", numbered(10))
        await shop.publish_many("", "audit", numbered(7))
        assert (await shop.statistics())["queues"]["jobs"]["oldest_s"] < 1000
        pass_time(broker, 1000)
        async with (
            shop.consume("jobs", prefetch=4) as deliveries, shop.read("audit", start="first") as records,
        ):  # fmt: skip
            found = await take(deliveries, 4)
            await found[1].ack(multiple=True)
            await deliveries.synced()
            await take(records, 7)
            statistics = await shop.statistics()
            queue, stream = statistics["queues"]["jobs"], statistics["streams"]["audit"]
            assert [queue[name] for name in TOTALS] == [10, 6, 2]
            assert [stream[name] for name in TOTALS] == [7, 7, 0]
            assert (queue["ready"], queue["unacked"], queue["size_bytes"]) == (4, 4, 8)
            for one in (queue, stream):
                assert 1000 <= one["oldest_s"] < 2000
            assert sum(statistics["confirm_us"].values()) == 2
            assert statistics["written_per_received"] > 1
        rates = set()
        with trio.fail_after(10):
            while "published" not in rates:  # In the interval in which it happened.
                await shop.publish("", "jobs", b"x")
                queue = (await shop.statistics())["queues"]["jobs"]
                rates = {name for name in TOTALS if queue[f"{name}_per_s"]}
            while rates:
                queue = (await shop.statistics())["queues"]["jobs"]
                rates = {name for name in TOTALS if queue[f"{name}_per_s"]}


async def test_what_was_there_before_a_restart_was_not_published_since(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(3))
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.publish("", "jobs", b"3")
        queue = (await shop.statistics())["queues"]["jobs"]
        assert (queue["ready"], queue["published"]) == (4, 1)
