"""Routing as clients see it: every type of exchange, and one record for many queues."""

from __future__ import annotations

from pathlib import Path

import pytest

import durable
from durable.errors import Unroutable
from tests.brokers import QUIET, client, drain, numbered, serving


async def queues(shop: durable.Connection, *names: str) -> None:
    for name in names:
        await shop.declare_queue(name)


async def test_direct(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "a", "b")
        await shop.declare_exchange("events")
        await shop.bind("events", "a", "x")
        await shop.bind("events", "b", "x")
        await shop.bind("events", "b", "y")
        for key in ("x", "y", "z"):
            await shop.publish("events", key, key.encode())
        assert await drain(shop, "a") == [b"x"]
        assert await drain(shop, "b") == [b"x", b"y"]
        await shop.unbind("events", "b", "x")
        await shop.publish("events", "x", b"again")
        assert await drain(shop, "a") == [b"again"]
        assert await drain(shop, "b") == []


async def test_topic_and_fanout(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "all", "eu")
        await shop.bind("amq.topic", "all", "#")
        await shop.bind("amq.topic", "eu", "orders.*.eu")
        await shop.publish("amq.topic", "orders.new.eu", b"1")
        await shop.publish("amq.topic", "orders.new.us", b"2")
        assert await drain(shop, "all") == [b"1", b"2"]
        assert await drain(shop, "eu") == [b"1"]
        await shop.bind("amq.fanout", "eu")
        await shop.publish("amq.fanout", "whatever", b"3")
        assert await drain(shop, "eu") == [b"3"]


async def test_headers_decide_message_by_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "red", "any")
        await shop.bind("amq.headers", "red", arguments={"colour": "red", "size": 1})
        await shop.bind(
            "amq.headers", "any", arguments={"x-match": "any", "colour": "red", "size": 1}
        )
        async with shop.publisher() as publisher:
            for number in range(30):
                headers = {"colour": "red" if number % 2 else "blue", "size": number % 3}
                await publisher.send("amq.headers", "", b"%d" % number, headers=headers)
        red = [n for n in range(30) if n % 2 and n % 3 == 1]
        some = [n for n in range(30) if n % 2 or n % 3 == 1]
        assert await drain(shop, "red") == [b"%d" % n for n in red]
        assert await drain(shop, "any") == [b"%d" % n for n in some]
        with pytest.raises(Unroutable):
            await shop.publish("amq.headers", "", b"", mandatory=True)


async def test_exchange_to_exchange_and_alternate(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "jobs", "rest")
        await shop.declare_exchange("rest", type="fanout", internal=True)
        await shop.declare_exchange("front", type="topic", alternate="rest")
        await shop.declare_exchange("back", type="direct")
        await shop.bind("front", "back", "jobs.*", to_exchange=True)
        await shop.bind("back", "front", "loop", to_exchange=True)
        await shop.bind("back", "jobs", "jobs.new")
        await shop.bind("rest", "rest")
        await shop.publish("front", "jobs.new", b"1", mandatory=True)
        await shop.publish("front", "other", b"2", mandatory=True)
        with pytest.raises(Unroutable):
            await shop.publish("front", "jobs.old", b"3", mandatory=True)
        assert await drain(shop, "jobs") == [b"1"]
        assert await drain(shop, "rest") == [b"2"]


async def test_one_record_for_many_queues(tmp_path: Path) -> None:
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        names = [f"q{number}" for number in range(50)]
        await queues(shop, *names, "memory")
        for name in names:
            await shop.bind("amq.fanout", name)
        log = broker.hosted("/").log
        before, end = log.statistics().committed_bytes, log.end
        await shop.publish_many("amq.fanout", "", [bytes(1000)] * 20)
        assert log.end == end + 1
        assert log.statistics().committed_bytes - before < 20 * 1000 * 1.3
        for name in names:
            assert len(await drain(shop, name)) == 20


async def test_bindings_survive_a_restart_and_go_with_their_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "a", "b")
        await shop.declare_exchange("events", type="topic", auto_delete=True)
        await shop.bind("events", "a", "x.*")
        await shop.bind("events", "b", "#")
        await shop.delete_queue("a")
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.publish_many("events", "x.y", numbered(3))
        assert await drain(shop, "b") == numbered(3)
        await shop.delete_queue("b")
        with pytest.raises(durable.DurableError):
            await shop.publish("events", "x.y", b"")


async def test_cc_and_bcc_lead_on_from_an_exchange_that_looks_at_headers(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await queues(shop, "plain", "copy", "blind")
        await shop.declare_exchange("behind")
        await shop.bind("amq.headers", "plain", arguments={"colour": "red"})
        await shop.bind("amq.headers", "behind", arguments={"kept": True}, to_exchange=True)
        for key in ("copy", "blind"):
            await shop.bind("behind", key, key)
        await shop.publish("amq.headers", "", b"1", headers={"colour": "red"}, cc="copy")
        headers = {"colour": "red", "kept": True}
        await shop.publish("amq.headers", "", b"2", headers=headers, cc="copy", bcc="blind")
        await shop.publish("amq.headers", "", b"3", headers={"kept": True}, bcc=["blind", "copy"])
        assert await drain(shop, "plain") == [b"1", b"2"]
        assert await drain(shop, "copy") == [b"2", b"3"]
        assert await drain(shop, "blind") == [b"2", b"3"]
