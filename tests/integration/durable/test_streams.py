"""Streams: what is kept of live topics and of what is published, and who reads it from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.broker.running_vhost import RunningVhost
from durable.definition_forms import to_plain
from durable.definitions import StreamDefinition
from durable.errors import ConsumerCancelled, InvalidDefinition, TooManyPatterns, UnknownStream
from durable.log.memory_disk import Volume
from durable.protocol.parts import Gap
from durable.vhost import changes
from durable.vhost.stream import Stream
from tests.brokers import (
    SMALL,
    at,
    client,
    node_of,
    numbered,
    payloads,
    serving,
    shop_at,
    take,
    until_told,
)
from tests.integration.durable.test_too_large import make, publish
from tests.nodes import free_ports, node, subscribed
from tests.power_cuts import CONFIG, run
from tests.vhosts import flushed, make_batch
from tests.waiting import until, virtual_sleep


async def read(
    shop: durable.Connection, stream: str, count: int, start: str | int | datetime = "first"
) -> list[bytes]:
    async with shop.read(stream, start=start) as records:
        return payloads(await take(records, count))


async def stream_end(shop: durable.Connection, stream: str, end: int) -> None:
    await until_told(shop, lambda told: told["streams"][stream]["end"] == end)


async def test_published_explicitly_and_read_from_everywhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.bind("amq.topic", "audit", "orders.#")
        await shop.publish_many("", "audit", numbered(10))
        await shop.publish("amq.topic", "orders.eu", b"10", headers={"n": 1}, mandatory=True)
        assert await read(shop, "audit", 11) == numbered(11)
        assert await read(shop, "audit", 1, "last") == [b"10"]
        assert await read(shop, "audit", 4, 7) == numbered(4, 7)
        async with shop.read("audit") as following, shop.read("audit", start=12) as later:
            await shop.publish_many("", "audit", numbered(3, 11))
            found = await take(following, 3)
            assert payloads(found) == numbered(3, 11)
            assert [one.tag for one in found] == [11, 12, 13]
            assert following.offset == 14
            assert payloads(await take(later, 2)) == numbered(2, 12)
        with pytest.raises(UnknownStream):
            await read(shop, "audi", 1)


async def test_from_a_time_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish("", "audit", b"before")
        clock = broker.hosted("/").clock
        clock._offset_ns += 3600 * 10**9
        await shop.publish("", "audit", b"after")
        now = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
        assert await read(shop, "audit", 1, now - timedelta(minutes=30)) == [b"after"]
        assert await read(shop, "audit", 2, now - timedelta(hours=2)) == [b"before", b"after"]
        # Found: "year 0 is out of range", for without a zone it has no time in UTC.
        assert await read(shop, "audit", 2, datetime.min) == [b"before", b"after"]
        async with shop.read("audit", start=now + timedelta(hours=1)) as records:
            await shop.publish("", "audit", b"next")
            assert payloads(await take(records, 1)) == [b"next"]


async def test_a_time_is_exact_to_the_record(tmp_path: Path) -> None:
    """Found: what came within 50 ms before it came as well, of a long backlog within minutes."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        clock, times = broker.hosted("/").clock, list[datetime]()
        for payload in numbered(30):
            clock._offset_ns += 5 * 10**6
            times.append(datetime.fromtimestamp(clock.now_us() / 1e6, UTC))
            await shop.publish("", "audit", payload)
        for first in range(0, 30, 7):
            assert await read(shop, "audit", 30 - first, times[first]) == numbered(
                30 - first, first
            )


async def test_what_cannot_be_read_may_have_come_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        running = broker.hosted("/")
        now_us = running.clock.now_us()  # Of both, however slow the loop is.
        monkeypatch.setattr(running.clock, "now_us", lambda: now_us)
        for payload in numbered(2):
            await shop.publish("", "audit", payload)
        now_us += 5000
        last = datetime.fromtimestamp(now_us / 1e6, UTC)
        await shop.publish("", "audit", b"2")
        running.vhost.registry.stream("audit").lane.index.move(1, 10**6)  # Where nothing is.
        async with shop.read("audit", start=last) as records:
            assert payloads(await take(records, 1)) == [b"2"]
            assert records._start_offset == 1
        assert (await shop.statistics())["lost"] == 1


async def test_plain_topics_are_captured_from_who_knows_nothing_of_it(tmp_path: Path) -> None:
    """Overlapping patterns and streams: each message is stored once."""
    async with (
        serving(tmp_path) as broker,
        client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):
        await shop.declare_stream("all", patterns=["orders.>"])
        await shop.declare_stream("eu", patterns=["orders.eu", "orders.*", "x.>"])
        await subscribed(sensors, "orders.eu", 3)
        await subscribed(sensors, "x.y", 1)
        for number in range(100):
            await sensors.publish("orders.eu", b"%d" % number, headers={"n": number})
        await sensors.publish("orders.a.b", b"deep")
        await sensors.publish("x.y", b"other")
        await sensors.publish("y", b"nobody's")
        await stream_end(shop, "all", 101)
        await stream_end(shop, "eu", 101)
        async with shop.read("all", start="first") as records:
            found = await take(records, 101)
        by_topic = [one for one in found if one.routing_key == "orders.eu"]
        assert payloads(by_topic) == numbered(100)
        assert [one.headers for one in by_topic] == [{"n": number} for number in range(100)]
        (other,) = [one for one in found if one not in by_topic]
        assert (other.routing_key, other.payload, other.headers) == ("orders.a.b", b"deep", {})
        found_eu = await read(shop, "eu", 101)
        found_eu.remove(b"other")
        assert found_eu == numbered(100)
        running = broker.hosted("/")
        stored = {
            run.position: run.count
            for name in ("all", "eu")
            for run in running.vhost.registry.streams[name].lane.index.runs(0, 101)
        }
        assert sum(stored.values()) == 102, "stored once"
        assert not running.vhost.registry.gaps


async def test_capture_goes_on_after_a_restart_and_ends_with_the_stream(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as broker, client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):  # fmt: skip
        await shop.declare_stream("all", patterns=["t"])
        await subscribed(sensors, "t")
        await sensors.publish("t", b"1")
        await stream_end(shop, "all", 1)
    async with (
        serving(tmp_path) as broker, client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):  # fmt: skip
        await subscribed(sensors, "t")
        await sensors.publish("t", b"2")
        await stream_end(shop, "all", 2)
        assert await read(shop, "all", 2) == [b"1", b"2"]
        statistics = await shop.statistics()
        assert (statistics["intake"]["received"], statistics["intake"]["captured"]) == (0, 1)
        assert statistics["written_per_received"] > 1, "what was captured was received, too"
        await shop.delete_stream("all")
        await subscribed(sensors, "t", 0)


async def test_a_newer_pattern_takes_nothing_from_an_older_one(tmp_path: Path) -> None:
    """Found: what an older subscription still held was left to one that had not seen it."""
    async with (
        serving(tmp_path) as broker, client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):  # fmt: skip
        await shop.declare_stream("old", patterns=["t.>"])
        await subscribed(sensors, "t.a")
        sent: list[bytes] = []

        async def publish(count: int) -> None:
            for _ in range(count):
                sent.append(b"%d" % len(sent))
                await sensors.publish("t.a", sent[-1])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(publish, 200)
            for number in range(5):
                await shop.declare_stream(f"new{number}", patterns=["t.*", f"t.a.{number}"])
        await stream_end(shop, "old", 1000)
        assert sorted(await read(shop, "old", 1000)) == sorted(sent)


async def test_more_patterns_than_a_node_may_subscribe_to_keep_no_broker_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: the declaration ended the broker, and every start after it."""
    patterns = [f"a{number}.>" for number in range(4)]
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit", patterns=patterns)
    async with serving(tmp_path, subscriptions_max=3) as broker, client(broker) as shop:
        await until(lambda: "is not captured: " in caplog.text)
        await shop.publish("", "audit", b"")
        await shop.declare_stream("again", patterns=patterns)
        with pytest.raises(TooManyPatterns):
            await shop.declare_stream("more", patterns=["b.>"])


async def test_a_pattern_that_is_no_longer_taken_keeps_no_broker_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """AMQP's `#` could be declared, and captured nothing."""
    patterns = ("orders.#", "orders.>")
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(InvalidDefinition, match="# is not a wildcard here"):
            await shop.declare_stream("audit", patterns=patterns)
        definition = StreamDefinition(name="audit", patterns=patterns)
        running = broker.hosted("/")
        (lane,) = running.vhost.registry.new_lanes(definition)
        await make(running, changes.STREAM, lane, to_plain(definition))
    async with serving(tmp_path) as broker, client(broker) as shop:
        await until(lambda: "pattern orders.# is not captured: " in caplog.text)
        await subscribed(node_of(broker), "orders.eu")
        await node_of(broker).publish("orders.eu", b"1")
        await stream_end(shop, "audit", 1)
        assert await read(shop, "audit", 1) == [b"1"]


async def test_more_patterns_than_a_node_may_subscribe_to_are_refused_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    """Found: they were declared, and only the broker's log said that they capture nothing."""
    async with serving(tmp_path, subscriptions_max=3) as broker, client(broker) as shop:
        await shop.create_vhost("/other")
        await durable.connect(shop._channel._node, vhost="/other").declare_stream(
            "audit", patterns="a.>"
        )
        await shop.declare_stream("audit", patterns=["a.>", "b.>"])
        end = broker.hosted("/").log.end
        with pytest.raises(TooManyPatterns, match=r"would be 4 different .* 3 sub") as told:
            await shop.declare_stream("more", patterns=["b.>", "c.>"])
        assert (told.value.patterns, told.value.limit) == (4, 3)
        plain = await shop.export_definitions()
        plain["streams"] += [{"name": "more", "patterns": ["c.>"]}]
        with pytest.raises(TooManyPatterns):
            await shop.import_definitions(plain)
        assert broker.hosted("/").log.end == end
        await shop.delete_stream("audit")
        await shop.declare_stream("more", patterns=["b.>", "c.>"])


@pytest.mark.parametrize("start", ["next", "last", "cursor"])
async def test_a_reader_that_has_taken_nothing_goes_on_where_it_began(
    tmp_path: Path, start: str
) -> None:
    """Found: it began anew with what was `next` or `last` by then, and what had come was skipped."""
    port = free_ports(1)
    cursor, first = ("billing", "first") if start == "cursor" else ("", start)
    async with shop_at(port) as joined, shop_at(port) as other:
        shop, second = durable.connect(joined), durable.connect(other)
        async with serving(tmp_path, **at(port)):
            await shop.declare_stream("audit")
            await shop.publish("", "audit", b"before")
            records = await shop.read("audit", start=first, cursor=cursor).__aenter__()
            await second.publish_many("", "audit", numbered(2))
        async with serving(tmp_path, **at(port)):
            await second.publish("", "audit", b"2")
            began = [] if start == "next" else [b"before"]
            assert payloads(await take(records, 3 + len(began))) == began + numbered(3)
            await records.__aexit__(None, None, None)


@pytest.mark.parametrize("other", ["stream", "store"])
async def test_a_reader_ends_where_another_stream_has_the_name_of_its_own(
    tmp_path: Path, other: str
) -> None:
    """Found: it went on at its offset in the new one, and skipped what that had before."""
    port = free_ports(1)
    async with shop_at(port) as joined, shop_at(port) as joined_too:
        shop, second = durable.connect(joined), durable.connect(joined_too)
        async with serving(tmp_path / "one", **at(port)):
            await shop.declare_stream("audit")
            await shop.publish_many("", "audit", numbered(5))
            records = await shop.read("audit", start="first", cursor="billing").__aenter__()
            await take(records, 5)
        await records.store()
        async with serving(
            tmp_path / ("one" if other == "stream" else "two"), **at(port)
        ) as broker:
            if other == "stream":
                await second.delete_stream("audit")
            await second.declare_stream("audit")
            await second.publish_many("", "audit", numbered(8))
            for _ in range(2):
                with pytest.raises(ConsumerCancelled, match="another one of the same name exists"):
                    await take(records, 1)
            with pytest.raises(ConsumerCancelled):  # Its cursor is kept nowhere.
                await records.__aexit__(None, None, None)
            assert not broker.hosted("/").vhost.registry.stream("audit").cursors


async def retained(tmp_path: Path, batches: Sequence[int], **limits: Any) -> list[int]:
    """Offsets a stream holds: batches of so many messages of 100 bytes, then retention."""
    async with serving(tmp_path, config=SMALL) as broker, client(broker) as shop:
        await shop.declare_stream("audit", **limits)
        for size in batches:
            await shop.publish_many("", "audit", [bytes(100)] * size)
        running = broker.hosted("/")
        stream = running.vhost.registry.stream("audit")
        stream.retain(running.clock.now_us())
        await flushed(running)
        expected = (stream.start, stream.end)
    async with serving(tmp_path) as broker, client(broker) as shop:
        stream = broker.hosted("/").vhost.registry.stream("audit")
        assert (stream.start, stream.end) == expected
        async with shop.read("audit", start="first") as records:
            found = await take(records, stream.end - stream.start)
        return [one.tag for one in found]


async def test_retention_by_count_drops_whole_records_from_the_front(tmp_path: Path) -> None:
    assert await retained(tmp_path, [10, 10, 10, 5], max_length=15) == list(range(20, 35))


async def test_retention_by_bytes_and_by_age(tmp_path: Path) -> None:
    found = await retained(tmp_path / "bytes", [10] * 5, max_length_bytes=2500)
    assert found == list(range(30, 50))
    found = await retained(tmp_path / "age", [3, 3], max_age_s=1e-6)
    assert found == [3, 4, 5], "the last record stays"


def test_retention_of_much_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    retain = Stream.retain

    async def life(running: RunningVhost) -> None:
        definition = StreamDefinition(name="audit", max_length=1)
        await make(running, changes.STREAM, 1, to_plain(definition))
        for number in range(5):
            await publish(running, make_batch(number, [b"x"], key="audit"))
        async with trio.open_nursery() as nursery:

            def one_at_a_time(stream: Stream, now_us: int) -> int:
                nursery.start_soon(look, stream)
                return retain(stream, now_us, 1)

            monkeypatch.setattr(Stream, "retain", one_at_a_time)
            await virtual_sleep(1.5 * CONFIG.idle_s)
            assert running.vhost.registry.stream("audit").start == 4
        assert len(set(seen)) > 2, "others looked on meanwhile"

    async def look(stream: Stream) -> None:
        seen.append(stream.start)

    run(Volume(), life)


async def test_a_reader_behind_retention_goes_on_at_the_front(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit", max_length=5)
        for payload in numbered(20):
            await shop.publish("", "audit", payload)
        running = broker.hosted("/")
        running.vhost.registry.stream("audit").retain(running.clock.now_us())
        assert await read(shop, "audit", 5, 3) == numbered(5, 15)


async def test_what_was_not_captured_is_recorded(tmp_path: Path) -> None:
    config = durable.BrokerConfig(log=SMALL.log, capture_bytes=20_000)
    async with (
        serving(tmp_path, config=config) as broker, client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):  # fmt: skip
        await shop.declare_stream("all", patterns=["t"])
        await subscribed(sensors, "t")
        for number in range(3000):
            await sensors.publish("t", b"%04d" % number + bytes(96))
        running = broker.hosted("/")
        stream = running.vhost.registry.stream("all")
        sent = 3000
        with trio.fail_after(10):
            while True:  # A loss shows with the next message that is not lost.
                missed = (await shop.statistics())["streams"]["all"]["missed"]
                if missed and stream.end + missed == sent:
                    break
                await sensors.publish("t", b"one more")
                sent += 1
        end = stream.end
        gaps = list(running.vhost.registry.gaps.of(stream.lane.id))
        assert all(gap.offset <= end for gap in gaps)
        await check_gaps(shop, end, sensors.id)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        registry = broker.hosted("/").vhost.registry
        assert list(registry.gaps.of(registry.stream("all").lane.id)) == gaps
        await check_gaps(shop, end, sensors.id)


async def check_gaps(shop: durable.Connection, end: int, publisher: bytes) -> None:
    """A reader is told of each message of `t` that is missing in `all`, where it is missing."""
    offset = following = 0
    gaps: list[Gap] = []
    async with shop.read("all", start="first") as records:
        with trio.fail_after(10):
            while offset < end:
                batch = await records.take()
                found_publisher, _, first = batch.publisher
                assert (batch.tag, found_publisher, first) == (
                    offset, publisher, following + batch.lost,
                )  # fmt: skip
                assert [one.lost for one in batch] == [batch.lost] + [0] * (len(batch) - 1)
                for gap in batch.gaps:
                    assert (gap.offset, gap.topic, gap.first) == (offset, "t", following)
                gaps += batch.gaps
                offset, following = offset + len(batch), first + len(batch)
    last = gaps[-1]
    async with shop.read("all", start=last.offset) as records:
        assert (await records.take()).gaps == (last,)
    async with shop.read("all", start=last.offset - 1) as records:
        assert [(await records.take()).gaps, (await records.take()).gaps][1] == (last,)


async def test_readers_are_told_when_their_stream_is_deleted(tmp_path: Path) -> None:
    """Found: they waited for ever; then the next call said that it would be tried again, and never was."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish("", "audit", b"x")
        async with shop.read("audit", start="first") as records:
            await take(records, 1)
            await shop.delete_stream("audit")
            for _ in range(2):
                with pytest.raises(ConsumerCancelled), trio.fail_after(10):
                    await records.take()


async def test_a_live_message_larger_than_a_broker_takes_is_captured_and_read(
    tmp_path: Path,
) -> None:
    """Found: the reader's window was less, and no reader came past it."""
    log = replace(SMALL.log, segment_bytes=16 << 20, reserve_bytes=1 << 20)
    config = replace(SMALL, log=log)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_stream("audit", patterns="live")
        async with node("web", node_of(broker)) as web:
            await subscribed(web, "live")
            for payload in (b"before", bytes(5 << 20), b"behind"):
                await web.publish("live", payload)
            assert await read(shop, "audit", 3) == [b"before", bytes(5 << 20), b"behind"]


@pytest.mark.parametrize("start", ["begin", -5, 1.5, True])
async def test_a_start_that_is_none(tmp_path: Path, start: Any) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(ValueError, match="want first, last, next"):
            shop.read("audit", start=start)


async def test_what_cannot_be_read_counts_once(tmp_path: Path) -> None:
    """Found: each slice and each reader counted all messages of the record, settled ones as well, and those
    that were lost were said to be acked."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.declare_exchange("both", type="fanout")
        for name in ("jobs", "audit"):
            await shop.bind("both", name, "")
        await shop.publish_many("both", "", numbered(40))
        async with shop.consume("jobs", prefetch=5) as deliveries:
            for one in await take(deliveries, 5):
                await one.ack()
        registry = broker.hosted("/").vhost.registry
        registry.queue("jobs").lanes[0].index.move(0, 10**6)  # Where nothing is.
        registry.stream("audit").lane.index.move(0, 10**6)
        await shop.publish("both", "", b"next")
        async with shop.consume("jobs", prefetch=3) as deliveries:
            assert payloads(await take(deliveries, 1)) == [b"next"]
        for _ in range(2):
            async with shop.read("audit", start="first") as records:
                assert payloads(await take(records, 1)) == [b"next"]
        told = await shop.statistics()
        assert told["lost"] == 35 + 40
        jobs = told["queues"]["jobs"]
        assert (jobs["acked"], jobs["dropped"], jobs["ready"]) == (5, {"unreadable": 35}, 1)
