"""What a broker counts, told to its clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from durable.broker.running_vhost import RunningVhost
from durable.broker.upkeep import RATES_S
from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.log.memory_disk import Volume
from durable.vhost import changes
from tests.brokers import PROMPT, client, numbered, pass_time, serving, take, until_told
from tests.integration.durable.test_checkpoint_files import Client
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import run
from tests.waiting import virtual_sleep

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
            assert (queue["consumers"], queue["durability"], stream["size_bytes"]) == (1, "disk", 7)
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


def test_rates_are_per_second_of_the_last_interval() -> None:
    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        audit = to_plain(StreamDefinition(name="audit"))
        await running.change_writer.write(lambda: [[changes.STREAM, 9, audit]])
        client, registry = Client(), running.vhost.registry
        for name, count in (("jobs", 20), ("audit", 10)):
            await client.publish(running, name, *[b"x"] * count)
        await virtual_sleep(1.5 * RATES_S)
        members = (registry.queue("jobs"), registry.stream("audit"))
        assert [round(one.counts.rates.published, 6) for one in members] == [
            20 / RATES_S, 10 / RATES_S,
        ]  # fmt: skip
        await virtual_sleep(RATES_S)
        assert [one.counts.rates.published for one in members] == [0, 0]

    run(Volume(), life)


async def test_what_was_there_before_a_restart_was_not_published_since(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(3))
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.publish("", "jobs", b"3")
        queue = (await shop.statistics())["queues"]["jobs"]
        assert (queue["ready"], queue["published"]) == (4, 1)


async def test_bytes_and_latencies_are_those_of_each_queue_and_stream(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        for name in ("one", "two", "idle"):
            await shop.declare_queue(name)
        await shop.declare_queue("memory", durability="memory")
        await shop.declare_stream("audit")
        for name in ("one", "two", "audit", "memory"):
            await shop.bind("amq.fanout", name)
        await shop.publish("amq.fanout", "", bytes(3000))
        await shop.publish("", "two", bytes(500))
        found = await shop.statistics()
        one, two, idle, memory = (
            found["queues"][name] for name in ("one", "two", "idle", "memory")
        )
        audit = found["streams"]["audit"]

        records = [sum(each["confirm_us"].values()) for each in (one, two, audit, idle, memory)]
        assert records == [1, 2, 1, 0, 0]
        assert 3000 < one["received_bytes"] == audit["received_bytes"] < 3200
        assert 3500 < two["received_bytes"] < 3900
        assert 1000 < one["written_bytes"] == audit["written_bytes"] < 1100, "a third of the record"
        assert two["written_bytes"] > one["written_bytes"] + 500
        assert one["written_per_received"] == one["written_bytes"] / one["received_bytes"] < 0.4
        for each in (idle, memory):
            assert (each["received_bytes"], each["written_bytes"]) == (0, 0)
            assert each["written_per_received"] is None

        assert await shop.purge_queue("one") == 1
        async with shop.consume("two") as deliveries:
            for delivery in await take(deliveries, 2):
                await delivery.ack()
        found = await shop.statistics()
        each = found["queues"].values()
        assert found["queues"]["one"]["written_bytes"] >= one["written_bytes"] + 32
        assert found["queues"]["two"]["written_bytes"] >= two["written_bytes"] + 32
        assert found["streams"]["audit"]["written_bytes"] == audit["written_bytes"]
        mine = sum(one["written_bytes"] for one in each) + audit["written_bytes"]
        assert mine <= found["log"]["committed_bytes"]


async def test_settlements_of_dead_letters_are_written_bytes_of_their_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("dead")
        await shop.declare_queue("jobs", dead_letter_exchange="", dead_letter_routing_key="dead")
        await shop.publish("", "jobs", b"x")
        before = (await shop.statistics())["queues"]["jobs"]["written_bytes"]
        async with shop.consume("jobs") as deliveries, shop.consume("dead") as dead:
            await (await take(deliveries, 1))[0].reject()
            await take(dead, 1)
            found = (await shop.statistics())["queues"]
        assert found["jobs"]["written_bytes"] > before
        assert sum(found["dead"]["confirm_us"].values()) == 1


async def test_what_is_dropped_without_a_dead_letter_is_counted_by_reason(tmp_path: Path) -> None:
    """Found: of what `delivery_limit` took, and the other limits, nothing was left to see."""
    async with serving(tmp_path, config=PROMPT) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", delivery_limit=1, max_length=6)
        await shop.declare_queue("dead")
        await shop.declare_queue(
            "buried", max_length=6, dead_letter_exchange="", dead_letter_routing_key="dead"
        )
        for payload in numbered(8):
            await shop.publish("", "jobs", payload)
            await shop.publish("", "buried", payload)
        async with shop.consume("jobs") as deliveries:
            found = await take(deliveries, 6)
            await found[0].nack()
            (again,) = await take(deliveries, 1)
            await again.nack()
            await found[1].reject()
            await found[2].reject()
            await found[5].ack(multiple=True)
        await shop.publish("", "jobs", b"late", ttl=0)
        dropped = {"maxlen": 2, "delivery_limit": 1, "rejected": 2, "expired": 1}
        await until_told(shop, lambda told: told["queues"]["jobs"]["dropped"] == dropped)
        assert (await shop.statistics())["queues"]["buried"]["dropped"] == {}
