"""A broker writes, Spark reads: queues and streams, batch and streaming, while both are running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from security.files import format_network_secret
from tests.brokers import SMALL, client, node_of, numbered, serving, until_told
from tests.nodes import node, subscribed
from tests.processes import SECRET
from tests.spark.frames import Query, load, one_line_with
from tests.stores import secret_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


async def rows(frame: DataFrame) -> list[Any]:
    """Collected in a thread, so that the broker goes on meanwhile."""
    return await trio.to_thread.run_sync(frame.collect)


async def test_what_a_broker_has_confirmed_is_read_while_it_runs(
    session: SparkSession, tmp_path: Path
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.declare_queue("jobs", max_priority=2)
        await shop.bind("amq.topic", "audit", "orders.#")
        await shop.publish_many("", "audit", numbered(100))
        await shop.publish("amq.topic", "orders.eu", b"eu", headers={"n": 1, "who": "me"})
        await shop.publish("", "jobs", b"urgent", priority=2)
        found = await rows(
            load(session, tmp_path, includeHeaders="true").orderBy("queue", "offset")
        )
        audit = [one for one in found if one.queue == "audit"]
        assert [bytes(one.value) for one in audit] == [*numbered(100), b"eu"]
        assert [one.offset for one in audit] == list(range(101))
        assert [one.sequence for one in audit] == list(range(101))
        assert {bytes(one.publisher) for one in audit} == {bytes(audit[0].publisher)}
        last = audit[-1]
        assert (last.topic, last.exchange, last.partition) == ("orders.eu", "amq.topic", 0)
        assert {(one.key, bytes(one.value)) for one in last.headers} == {
            ("n", b"1"),
            ("who", b"me"),
        }
        assert audit[0].headers == []
        (job,) = (one for one in found if one.queue == "jobs")
        assert (job.partition, job.offset, bytes(job.value), job.topic) == (2, 0, b"urgent", "jobs")
        assert abs((job.timestamp - job.published).total_seconds()) < 5
        await shop.publish("", "audit", b"later")
        assert load(session, tmp_path, streams="audit").count() == 102


async def test_a_stream_follows_live_topics_while_the_broker_runs_and_after_it_restarts(
    session: SparkSession, tmp_path: Path
) -> None:
    query = Query(session, tmp_path / "data", tmp_path, subscribe="orders.>")
    sent: list[bytes] = []
    for _ in range(2):
        async with serving(tmp_path / "data") as broker, client(broker) as shop:
            await shop.declare_stream("live", patterns=["orders.*"])
            async with node("publishing", node_of(broker)) as publishing:
                await subscribed(publishing, "orders.eu")
                for number in range(50):
                    await publishing.publish("orders.eu", b"%d" % number)
                    sent.append(b"%d" % number)
                await until_told(shop, lambda told: told["streams"]["live"]["end"] == len(sent))
            await trio.to_thread.run_sync(query.run)
            written = await trio.to_thread.run_sync(lambda: query.messages)
            assert len(written) == len(sent), "the last commit, too"
    found = await trio.to_thread.run_sync(lambda: query.messages)
    assert [one.value for one in sorted(found, key=lambda one: one.offset)] == sent
    assert {one.topic for one in found} == {"orders.eu"}


async def test_what_a_broker_encrypts_is_read_with_its_keys_only(
    session: SparkSession, tmp_path: Path
) -> None:
    """Written by one that encrypts and one that does not, in turn; Spark's workers have the option only."""
    data = tmp_path / "data"
    key = secret_file(tmp_path / "secret", SECRET)
    query = Query(session, data, tmp_path, **{"mesh.network_secret_file": key})
    for number, encrypt in enumerate([True, False, True]):
        config = replace(SMALL, encrypt=encrypt)
        async with serving(data, config=config) as broker, client(broker) as shop:
            if not number:
                await shop.declare_stream("audit")
            await shop.publish_many("", "audit", numbered(50, 50 * number))
            sent = numbered(50 * (number + 1))
            frame = load(session, data, **{"mesh.network_secret_file": key}).orderBy("offset")
            assert [bytes(one.value) for one in await rows(frame)] == sent
            await trio.to_thread.run_sync(query.run)
            found = await trio.to_thread.run_sync(lambda: query.messages)
            assert [one.value for one in sorted(found, key=lambda one: one.offset)] == sent
    (log,) = data.glob("vhosts/*/log")
    other = secret_file(
        tmp_path / "other", format_network_secret(b"another, also 32 bytes in length")
    )
    for options, wanted in (
        ({}, "no key: "),
        ({"mesh.network_secret_file": other}, "the keys given are "),
        ({"mesh.network_secret_file": tmp_path / "none"}, "none"),
    ):
        with one_line_with(wanted, str(log)):
            await rows(load(session, data, **options))
