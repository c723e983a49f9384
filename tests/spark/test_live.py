"""A broker writes, Spark reads: queues and streams, batch and streaming, while both are running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from tests.brokers import client, numbered, serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(session: SparkSession, path: Path, **options: Any) -> DataFrame:
    return session.read.format("mesh-capture").options(**options).load(str(path))


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
