"""Workers killed while they send, and streaming queries that fail within a batch: what queues have then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.brokers import until_told
from tests.waiting import until_in_thread

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import durable
from durable.client.connection import Connection
from tests.brokers import client, drain, node_of, numbered, serving
from tests.spark.sinks import (
    FLAG_S_MAX,
    LARGE,
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
STORED_MIN = 100
"""In the queue before something breaks: two batches."""


def waiting_once(flag: Path, number: int) -> Callable[[bytes], bytes]:
    """For a UDF or `map`: the value that begins with `number` comes only when `flag` is there."""
    path, wanted = str(flag), b"%d." % number

    def pass_on(value: bytes) -> bytes:
        if value.startswith(wanted):
            until_in_thread(Path(path).exists, FLAG_S_MAX)
        return value

    return pass_on


def failing_until(flag: Path, mended: Path, number: int) -> Callable[[bytes], bytes]:
    """The same; and as long as `mended` is not there, that is where every attempt ends."""
    wait, path, wanted = waiting_once(flag, number), str(mended), b"%d." % number

    def pass_on(value: bytes) -> bytes:
        if wait(value).startswith(wanted) and not Path(path).exists():
            raise RuntimeError("on purpose")
        return value

    return pass_on


def senders(broker: durable.Broker) -> list[int]:
    """Workers of the sink that are members beside the broker: who owns the ports that they tell."""
    ports = {
        int(endpoint.rpartition(":")[2])
        for member in node_of(broker).members("spark")
        for endpoint in member.endpoints
    }
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = {
        f"socket:[{fields[9]}]"
        for fields in map(str.split, lines)
        if int(fields[1].partition(":")[2], 16) in ports
    }
    found = set()
    for one in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # It has ended, or is none of ours.
            if os.readlink(one) in sockets:
                found.add(int(one.parts[2]))
    return sorted(found)


async def until_stored(broker: Connection, queue: str) -> None:
    await until_told(broker, lambda told: told["queues"][queue]["ready"] >= STORED_MIN, 60)


async def test_a_worker_killed_while_it_sends_leaves_nothing_twice_and_nothing_out(
    session: SparkSession, tmp_path: Path
) -> None:
    """SIGKILL: it can tell neither Spark nor the broker. Its task is tried again, in another process."""
    values = [value + LARGE for value in numbered(800)]
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        flag, report = tmp_path / "flag", tmp_path / "report"
        wait = waiting_once(flag, 600)
        found = session.sparkContext.parallelize(rows("jobs", values), 1)
        frame = session.createDataFrame(
            found.map(lambda row: (row[0], wait(row[1]))), "queue string, value binary"
        )
        options = {**way_into(tmp_path, broker), "to": "queues", "report": str(report)}
        killed: list[int] = []

        async def kill() -> None:
            await until_stored(shop, "jobs")
            for pid in senders(broker):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            flag.touch()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            await in_spark(session, lambda: write(frame, options))
        assert len(killed) == 1
        assert await drain(shop, "jobs") == values
        (told,) = reports(report)
        assert told.counts.duplicates >= STORED_MIN
        assert told.counts.sent + told.counts.duplicates == len(values)
        assert told.complete


async def test_a_streaming_query_that_failed_within_a_batch_goes_on_where_it_was(
    session: SparkSession, tmp_path: Path
) -> None:
    """Each attempt fails at the same message, until the query does. More is published before it starts
    again, and belongs to the next batch: the one that failed has the same rows as before."""
    values = [value + LARGE for value in numbered(900)]
    async with serving(tmp_path / "data") as broker, client(broker) as shop:
        await shop.declare_stream("events")
        await shop.declare_queue("copies")
        await shop.publish_many("", "events", values[:600])
        flag, mended, report = tmp_path / "flag", tmp_path / "mended", tmp_path / "report"
        options = {**way_into(tmp_path, broker), "to": "queues", "queue": "copies"}

        def run() -> None:
            from pyspark.sql import functions as f

            fail = f.udf(failing_until(flag, mended, 450), "binary", useArrow=False)
            frame = (
                session.readStream.format("mesh-capture")
                .options(streams="events", startingOffsets="earliest", ordering="queue")
                .load(str(tmp_path / "data"))
                .select(fail("value").alias("value"))
            )
            query = (
                frame.writeStream.format("mesh")
                .options(**options, report=str(report))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(100)

        async def let_it_fail() -> None:
            await until_stored(shop, "copies")
            flag.touch()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_it_fail)
            with pytest.raises(Exception, match="on purpose"):
                await in_spark(session, run)
        stored = await ready(shop, "copies")
        assert STORED_MIN <= stored <= 450
        await shop.publish_many("", "events", values[600:])
        mended.touch()
        await in_spark(session, run)
        assert await drain(shop, "copies") == values
        failed, again, following = reports(report)
        assert (failed.complete, failed.batch) == (False, 0)
        assert (again.batch, again.counts.duplicates) == (0, stored)
        assert again.counts.sent + stored == 600
        assert (following.batch, following.counts.sent, following.counts.duplicates) == (1, 300, 0)
