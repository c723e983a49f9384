"""What one broker has stored, sent to another and to topics: all of it, once, in order, in its time."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.brokers import until_told

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.client.connection import Connection
from spark.errors import CaptureError
from spark.replay.errors import QueueMissing
from spark.replay.plan import QUEUES, TOPICS, Destination, ReplayPlan, read_destination
from spark.replay.replay import ReplayResult, one_line_errors, replay
from tests.brokers import drain, node_of, numbered
from tests.spark.sinks import in_spark, ready, two_brokers, way_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import durable

TO_BROKER = Destination(QUEUES, "broker2")


def plan(tmp_path: Path, **fields: Any) -> ReplayPlan:
    return ReplayPlan(**{"directory": str(tmp_path / "from"), "to": TO_BROKER, **fields})


async def replayed(
    session: SparkSession, tmp_path: Path, broker: durable.Broker, found: ReplayPlan, **options: Any
) -> ReplayResult:
    joining = way_into(tmp_path, broker)
    return await in_spark(session, lambda: replay(session, found, joining, **options))


async def fill(source: Connection, *targets: Connection) -> None:
    """Two queues, one with priorities, and a stream, written in turn."""
    for one in (source, *targets):
        await one.declare_queue("jobs")
        await one.declare_queue("urgent", max_priority=2)
        await one.declare_stream("events")
    async with source.publisher() as publisher:
        for number in range(200):
            await publisher.send("", "jobs", b"%d" % number)
            await publisher.send("", "events", b"%d" % number)
    for priority in (0, 2):
        await source.publish_many(
            "", "urgent", numbered(20, first=20 * priority), priority=priority
        )


async def test_a_replay_stores_everything_once_in_order_and_again_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    async with two_brokers(tmp_path) as (source, target, broker):
        await fill(source, target)
        looked = await replayed(session, tmp_path, broker, plan(tmp_path), dry_run=True)
        assert looked.survey.rows == 440
        assert looked.report.counts.sent == 0
        assert await ready(target, "jobs") == 0
        told: list[tuple[int, int]] = []
        first = await replayed(
            session, tmp_path, broker, plan(tmp_path, id="r"),
            progress=lambda done, total: told.append((done, total)),
        )  # fmt: skip
        second = await replayed(
            session, tmp_path, broker, plan(tmp_path, id="r", where="offset >= 0")
        )
        again = await replayed(session, tmp_path, broker, plan(tmp_path, id="r"))
        assert first.report.counts.sent == 440
        assert second.report.counts.sent == 440, "another choice of rows is another replay"
        assert (again.report.counts.sent, again.report.counts.duplicates) == (0, 440)
        assert first.report.complete
        jobs = await drain(target, "jobs")
        assert jobs == numbered(200) + numbered(200)
        urgent = [int(one) for one in await drain(target, "urgent")]
        assert sorted(urgent) == sorted(2 * [*range(20), *range(40, 60)])
        assert all(total == 440 for _, total in told)


async def test_another_queue_of_the_same_name_is_no_duplicate(
    session: SparkSession, tmp_path: Path
) -> None:
    """Found: of a queue that was declared anew, or is in another directory, nothing was sent any more
    under an id that had been used: offsets begin with 0 again."""
    found = plan(tmp_path, id="nightly", queues=("jobs",))
    async with two_brokers(tmp_path) as (source, target, broker):
        await target.declare_queue("jobs")
        for life in range(2):
            await source.declare_queue("jobs")
            await source.publish_many("", "jobs", numbered(20, first=100 * life))
            assert (await replayed(session, tmp_path, broker, found)).report.counts.sent == 20
            await source.publish("", "jobs", b"late")
            counts = (await replayed(session, tmp_path, broker, found)).report.counts
            assert (counts.sent, counts.duplicates) == (1, 20)
            await source.delete_queue("jobs")
        expected = [[*numbered(20, first=100 * life), b"late"] for life in range(2)]
        assert await drain(target, "jobs") == [one for life in expected for one in life]


async def test_a_replay_to_topics_is_marked_and_is_not_replayed_again(
    session: SparkSession, tmp_path: Path
) -> None:
    async with two_brokers(tmp_path) as (source, target, broker):
        await source.declare_stream("events", patterns=["orders.>"])
        await target.declare_stream("replays", patterns=["test.>"])
        await source.bind("amq.topic", "events", "orders.#")
        for number in range(60):
            await source.publish("amq.topic", f"orders.{number % 2}", b"%d" % number)
        found = plan(
            tmp_path, to=Destination(TOPICS, "", "^orders", "test"), topic="orders.1", id="marked"
        )
        await source.publish("amq.topic", "orders.1", b"60", headers={"x-replayed-from": "events"})
        looked = await replayed(session, tmp_path, broker, found, dry_run=True)
        assert looked.plain()["topics"] == {"test.1": 30}, "what is marked is left out"
        node = node_of(broker)
        async with node.subscribe("test.>", when_full="block") as tests:
            report = (await replayed(session, tmp_path, broker, found)).report
            with trio.fail_after(20):
                messages = [await anext(tests) for _ in range(30)]
        assert [int(one.payload) for one in messages] == list(range(1, 60, 2))
        assert {one.topic for one in messages} == {"test.1"}
        for one in messages:
            assert one.headers["x-replayed-from"] == "events"
            assert str(one.headers["x-replay-id"]).startswith("marked/")
        assert report.counts.sent == 30
        await until_told(target, lambda told: told["streams"]["replays"]["end"] >= 30, 20)
        back = ReplayPlan(directory=str(tmp_path / "to"), to=Destination(TOPICS))
        counts = (await replayed(session, tmp_path, broker, back)).report.counts
        assert (counts.sent, counts.skipped) == (0, 30)


async def test_a_paced_replay_is_never_early_and_cuts_pauses(
    session: SparkSession, tmp_path: Path
) -> None:
    """0.4 s of messages, a pause of 1.5 s that counts for 0.1 s, and the same again: at half the
    speed that is 1.8 s at least, and 4.6 s with the pause."""
    async with two_brokers(tmp_path) as (source, target, broker):
        for one in (source, target):
            await one.declare_queue("jobs")
        for _ in range(2):
            for number in range(5):
                await source.publish("", "jobs", b"%d" % number)
                await trio.sleep(0.1)
            await trio.sleep(1.5)
        paced = plan(tmp_path, speed=0.5, max_gap_s=0.2)
        found = await replayed(session, tmp_path, broker, paced)
        span_s = (found.survey.last_us - found.survey.first_us) / 1e6
        assert span_s > 1.5
        assert found.report.counts.sent == 10
        assert sum(found.report.lateness.counts.values()) == 10
        cut_s = span_s - (1.5 + 0.1 - 0.2)
        assert found.report.seconds > 2 * cut_s * 0.9
        assert await drain(target, "jobs") == 2 * numbered(5)


def to_topics(tmp_path: Path, text: str) -> ReplayPlan:
    return plan(tmp_path, to=read_destination(text))


@pytest.mark.parametrize("prefix", ["$0x.", "back\\slash.", "$SYS."])
async def test_a_prefix_is_taken_as_it_stands(
    session: SparkSession, tmp_path: Path, prefix: str
) -> None:
    """Found: Java took it for a replacement, and `$0x.jobs` arrived as `x.jobs`."""
    async with two_brokers(tmp_path) as (source, _, broker):
        await source.declare_queue("jobs")
        await source.publish("", "jobs", b"x")
        found = await replayed(
            session, tmp_path, broker, to_topics(tmp_path, f"{prefix}>"), dry_run=True
        )
        assert found.plain()["topics"] == {f"{prefix}jobs": 1}


async def test_what_is_wrong_is_said_before_anything_is_sent(
    session: SparkSession, tmp_path: Path
) -> None:
    """Found: topics were looked at by the tasks that sent them, and nobody said what was wrong."""
    async with two_brokers(tmp_path) as (source, target, broker):
        await source.declare_queue("jobs")
        await source.publish_many("", "jobs", numbered(10))
        with pytest.raises(QueueMissing, match="'broker2' has no queue or stream 'jobs'"):
            await replayed(session, tmp_path, broker, plan(tmp_path))
        for wrong, text in (
            (plan(tmp_path, where="valu > 3"), "valu"),
            (plan(tmp_path, where="((("), "PARSE_SYNTAX_ERROR"),
            (plan(tmp_path, queues=("jbos",)), "jobs"),
            (ReplayPlan(directory=str(tmp_path / "none"), to=TO_BROKER), "none"),
            (to_topics(tmp_path, "s/jobs//"), "topic ''.*nothing was sent"),
            (to_topics(tmp_path, "s/jobs/a b/"), "topic 'a b'.*nothing was sent"),
            (to_topics(tmp_path, "s/jobs/a.>/"), "topic 'a.>'.*nothing was sent"),
            (to_topics(tmp_path, f"s/jobs/{'x' * 256}/"), "topic of 256 bytes.*nothing was sent"),
            (to_topics(tmp_path, "s/a{,3}/x/"), "regular expression of Java"),
        ):
            with pytest.raises(CaptureError, match=text) as caught:
                await replayed(session, tmp_path, broker, wrong)
            assert "\n" not in str(caught.value)
        assert (await target.statistics())["queues"] == {}


def killed(_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_told_in_one_line(session: SparkSession) -> None:
    """Found: as for want of memory. The command ended with a stack of two screens, without its report."""
    with pytest.raises(CaptureError) as caught, one_line_errors():
        session.range(1).mapInArrow(killed, "id long").collect()
    told = "a worker process of Spark was killed, or ran out of memory"
    assert str(caught.value) == told
