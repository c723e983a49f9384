"""Rows into queues and topics of a running mesh: once, in order, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.brokers import until_told

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.brokers import client, drain, node_of, numbered, serving
from tests.spark.frames import one_line_with
from tests.spark.sinks import (
    LARGE,
    failing_once,
    in_spark,
    ready,
    reports,
    rows,
    way_into,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("small_batches")
SCHEMA = "queue string, value binary"


async def test_a_task_that_is_tried_again_stores_nothing_twice_and_keeps_the_order(
    session: SparkSession, tmp_path: Path
) -> None:
    values = [value + LARGE for value in numbered(800)]
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        flag, report = tmp_path / "flag", tmp_path / "report"
        found = session.sparkContext.parallelize(rows("jobs", values), 1)
        frame = session.createDataFrame(found.mapPartitions(failing_once(flag, 600)), SCHEMA)
        options = {**way_into(tmp_path, broker), "to": "queues", "report": str(report)}

        async def let_it_fail() -> None:
            await until_told(shop, lambda told: told["queues"]["jobs"]["ready"] >= 100, 60)
            flag.touch()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_it_fail)
            await in_spark(session, lambda: write(frame, options))
        assert await drain(shop, "jobs") == values
        (told,) = reports(report)
        assert told.counts.duplicates >= 100
        assert told.counts.sent + told.counts.duplicates == 800
        assert told.complete


async def test_a_query_that_runs_again_under_its_id_stores_the_rest(
    session: SparkSession, tmp_path: Path
) -> None:
    """The second time a third of the rows are selected beside those of the first time."""
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        report = tmp_path / "report"
        frame = session.range(0, 900, 1, 1).selectExpr(
            "'jobs' as queue", "0 as partition", "id as offset",
            "binary(string(id)) as value",
        )  # fmt: skip
        options = {
            **way_into(tmp_path, broker), "to": "queues", "report": str(report),
            "numbering": "offsets", "id": "again",
        }  # fmt: skip
        fails = frame.where("if(offset = 600, raise_error('on purpose'), true)")
        with pytest.raises(Exception, match="on purpose"):
            await in_spark(session, lambda: write(fails, options))
        assert not reports(report)[0].complete
        await in_spark(session, lambda: write(frame, options))
        await in_spark(session, lambda: write(frame, options))
        assert await drain(shop, "jobs") == numbered(900)
        counts = reports(report)[-1].counts
        assert (counts.sent, counts.duplicates) == (0, 900)


async def test_a_streaming_query_that_lost_its_commit_stores_nothing_twice(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark had not written down that the last batch was done: after the restart it runs again."""
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_stream("events")
        await shop.declare_queue("copies")
        await shop.publish_many("", "events", numbered(500))
        report, checkpoint = tmp_path / "report", tmp_path / "checkpoint"

        def run() -> None:
            frame = (
                session.readStream.format("mesh-capture")
                .options(streams="events", startingOffsets="earliest", ordering="queue")
                .load(str(tmp_path / "data"))
            )
            query = (
                frame.writeStream.format("mesh")
                .options(
                    **way_into(tmp_path, broker), to="queues", queue="copies", report=str(report)
                )
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(100)

        await in_spark(session, run)
        assert await ready(shop, "copies") == 500
        commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
        last = commits[-1]
        last.unlink()
        (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
        await shop.publish_many("", "events", numbered(100, first=500))
        await in_spark(session, run)
        assert await drain(shop, "copies") == numbered(600)
        told = {one.batch: one.counts for one in reports(report)}
        assert told[int(last.name)].duplicates > 0
        assert sum(one.counts.sent for one in reports(report)) == 600


async def test_rows_to_topics_reach_subscribers_in_order_with_their_headers(
    session: SparkSession, tmp_path: Path
) -> None:
    async with serving(tmp_path / "data") as broker:
        report = tmp_path / "report"
        frame = session.range(0, 300, 1, 1).selectExpr(
            "concat('orders.', id % 3) as topic", "binary(string(id)) as value",
            "map('n', string(id % 2)) as headers",
        )  # fmt: skip
        options = {**way_into(tmp_path, broker), "report": str(report)}
        async with node_of(broker).subscribe("orders.*", when_full="block") as orders:
            await in_spark(session, lambda: write(frame, options))
            with trio.fail_after(20):
                found = [await anext(orders) for _ in range(300)]
        for topic in range(3):
            values = [int(one.payload) for one in found if one.topic == f"orders.{topic}"]
            assert values == list(range(topic, 300, 3))
        assert all(one.headers == {"n": str(int(one.payload) % 2)} for one in found)
        (told,) = reports(report)
        assert (told.counts.sent, told.counts.dropped, told.counts.nobody) == (300, 0, 0)


async def test_a_queue_that_is_not_there_is_an_error_and_the_report_says_so(
    session: SparkSession, tmp_path: Path
) -> None:
    async with serving(tmp_path / "data") as broker:
        report = tmp_path / "report"
        frame = session.createDataFrame(rows("nowhere", numbered(10)), SCHEMA)
        options = {**way_into(tmp_path, broker), "to": "queues", "report": str(report)}
        with one_line_with("there is no queue 'nowhere'"):
            await in_spark(session, lambda: write(frame, options))
        (told,) = reports(report)
        assert (told.counts.sent, told.complete) == (0, False)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"broker": "elsewhere", "to": "queues", "timeoutSeconds": "0.5"}, "'elsewhere' cannot be reached"),
        ({"to": "everywhere"}, "topics, queues"),
        ({"speeed": "1"}, "did you mean speed"),
        ({"report": "nowhere/report"}, "an existing directory"),
    ],
)  # fmt: skip
async def test_what_cannot_be_sent_is_told_in_one_line(
    session: SparkSession, tmp_path: Path, changed: dict[str, str], text: str
) -> None:
    async with serving(tmp_path / "data") as broker:
        frame = session.createDataFrame(
            [("jobs", "a", b"x")], "queue string, topic string, value binary"
        )
        options = {**way_into(tmp_path, broker), **changed}
        with one_line_with(text):
            await in_spark(session, lambda: write(frame.coalesce(1), options))


@pytest.mark.parametrize("in_order", [True, False])
async def test_one_queue_in_two_tasks_is_said_when_its_order_matters(
    session: SparkSession, tmp_path: Path, in_order: bool
) -> None:
    """Where each task by itself is in order, it is found when all have ended."""
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        frame = session.range(0, 20, 1, 2).selectExpr(
            "'jobs' as queue", "0 as partition",
            "id as offset" if in_order else "20 - id as offset", "binary('x') as value",
        )  # fmt: skip
        report = tmp_path / "report"
        options = {
            **way_into(tmp_path, broker), "to": "queues", "report": str(report),
            "numbering": "offsets", "id": "r",
        }  # fmt: skip
        with one_line_with("jobs/0", "ordering=queue"):
            await in_spark(session, lambda: write(frame, options))
        (told,) = reports(report)
        assert (told.tasks, told.complete) == (2, False)
        assert (told.failed_tasks == 0) == in_order
