"""Publishing: what is confirmed is on disk, what is refused says why."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import durable
from durable.broker.running_vhost import RunningVhost
from durable.client.delivery import Delivery
from durable.errors import (
    InternalExchange,
    InvalidDefinition,
    QueueFull,
    Unconfirmed,
    UnknownExchange,
    Unroutable,
)
from durable.protocol.properties import Properties
from tests.brokers import QUIET, SMALL, client, drain, numbered, payloads, serving, take
from tests.waiting import PATIENCE_S, until


async def test_one_by_one_and_many(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"0")
        await shop.publish_many("", "jobs", numbered(2999, 1))
        assert await drain(shop, "jobs") == numbered(3000)


async def test_pipelined_by_several_publishers(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, trio.open_nursery() as nursery:
        await shop.declare_queue("jobs")

        async def publish(name: bytes) -> None:
            async with shop.publisher(window_bytes=4096) as publisher:
                for number in range(500):
                    await publisher.send("", "jobs", b"%s%d" % (name, number))

        for name in (b"a", b"b"):
            nursery.start_soon(publish, name)
        async with shop.consume("jobs") as deliveries:
            found = payloads(await take(deliveries, 1000))
        for name in (b"a", b"b"):
            mine = [one for one in found if one.startswith(name)]
            assert mine == [b"%s%d" % (name, number) for number in range(500)]


async def test_many_at_once_through_a_window_smaller_than_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher(window_bytes=4096) as publisher:
            await publisher.send_many("", "jobs", [])
            await publisher.send_many("", "jobs", numbered(2000))
            await publisher.send("", "jobs", b"2000")
            await publisher.send_many("", "jobs", numbered(10, 2001), headers={"kind": "late"})
        async with shop.consume("jobs", prefetch=3000) as deliveries:
            found = await take(deliveries, 2011)
        assert payloads(found) == numbered(2011)
        assert [one.headers for one in found] == [{}] * 2001 + [{"kind": "late"}] * 10


async def test_many_at_once_of_which_one_cannot_be_are_not_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            with pytest.raises(TypeError, match="want bytes, got str"):
                await publisher.send_many("", "jobs", [b"0", "1"])  # type: ignore[list-item]
            with pytest.raises(InvalidDefinition, match="key"):
                await publisher.send_many("", "x" * 256, [b"0"])
            await publisher.send_many("", "nowhere", [b"0", b"1"], mandatory=True)
            with pytest.raises(Unroutable):
                await publisher.flush()
        assert await drain(shop, "jobs") == []


@pytest.mark.parametrize("how", ["send_many", "publish", "publish_many"])
async def test_a_list_that_is_changed_while_its_messages_wait_is_stored_as_it_was(
    tmp_path: Path, how: str
) -> None:
    """Found: what was put into it had not been checked, and could end the whole node."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        given: list[Any] = [b"%010000d" % number for number in range(1000)]
        was = list(given)
        async with shop.publisher(window_bytes=20_000) as publisher:
            publish = getattr(shop if how == "publish_many" else publisher, how)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, "", "jobs", given)
                await trio.testing.wait_all_tasks_blocked()
                given[990] = "text"
                del given[995:]
        assert await drain(shop, "jobs") == was


async def test_a_confirm_means_that_the_record_is_durable(tmp_path: Path) -> None:
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        log = broker.hosted("/").log
        before = log.durable_end
        await shop.publish("", "jobs", b"x")
        assert log.durable_end > before
        assert log.durable_end == log.end


@asynccontextmanager
async def published(data: Path) -> AsyncGenerator[tuple[durable.Connection, RunningVhost]]:
    """A client of a broker that does nothing by itself, with one message in a queue `jobs`."""
    async with serving(data, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"x")
        yield shop, broker.hosted("/")


async def test_one_at_a_time_the_pump_runs_once_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn for nothing between a part and its commit: the writer waits for each of them."""
    async with published(tmp_path) as (shop, running):
        committed, ends = running.vhost.committed, list[int]()

        def counted(end: int, now_us: int) -> None:
            ends.append(end)
            committed(end, now_us)

        monkeypatch.setattr(running.vhost, "committed", counted)
        first = running.log.end
        for _ in range(10):
            await shop.publish("", "jobs", b"x")
        assert set(ends) >= set(range(first + 1, first + 11))
        assert len(ends) < 15, (
            "not two for each; something else may wake it, too, on a busy machine"
        )


async def test_a_confirm_leaves_before_its_commit_is_noted_in_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for it does not wait for that, too; whatever it asks then knows both."""
    async with published(tmp_path) as (shop, running):
        queue, (session,) = running.vhost.registry.queue("jobs"), running._publishers.values()
        confirm, ready = session.confirm, list[int]()

        def noting() -> None:
            ready.append(queue.ready)
            confirm()

        monkeypatch.setattr(session, "confirm", noting)
        await shop.publish("", "jobs", b"x")
        assert ready[0] == 1
        assert (await shop.statistics())["queues"]["jobs"]["ready"] == 2


async def test_what_is_kept_in_memory_only_is_delivered_without_a_commit(tmp_path: Path) -> None:
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", durability="memory")
        end = broker.hosted("/").log.end
        async with shop.consume("jobs", no_ack=True) as deliveries:
            for payload in numbered(5):
                await shop.publish("", "jobs", payload)
                assert payloads(await take(deliveries, 1)) == [payload]
        assert broker.hosted("/").log.end == end


async def test_nobody_wants_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.publish("", "nowhere", b"x")
        with pytest.raises(Unroutable) as refused:
            await shop.publish("", "nowhere", b"x", mandatory=True)
        assert (refused.value.exchange, refused.value.key) == ("", "nowhere")
        assert (await shop.statistics())["intake"]["dropped"] == 1


async def test_more_refusals_than_one_part_holds(tmp_path: Path) -> None:
    """Found by reading: the confirm was too large, the session crashed, and all came again."""
    mandatory = Properties("", 0, None, mandatory=True)
    async with serving(tmp_path) as broker, client(broker, tunnel_window_bytes=1 << 16) as shop:
        await shop.declare_queue("jobs")
        with trio.fail_after(PATIENCE_S), pytest.raises(Unroutable) as refused:
            async with shop.publisher() as publisher:
                for number in range(2000):
                    await publisher.send("", f"nowhere {number}", b"x", properties=mandatory)
                await publisher.send("", "jobs", b"stored")
        assert refused.value.__notes__ == ["2000 messages were refused"]
        assert (await shop.statistics())["intake"]["refused"] == 2000
        assert await drain(shop, "jobs") == [b"stored"]


async def test_unknown_and_internal_exchanges(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_exchange("inside", internal=True)
        with pytest.raises(UnknownExchange) as refused:
            await shop.publish("insid", "jobs", b"x")
        assert refused.value.nearest == "inside"
        with pytest.raises(InternalExchange):
            await shop.publish("inside", "jobs", b"x")
        await shop.publish("", "jobs", b"goes on")
        assert await drain(shop, "jobs") == [b"goes on"]


async def test_a_full_queue_takes_the_prefix(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=5, overflow="reject-publish")
        with pytest.raises(QueueFull) as refused:
            await shop.publish_many("", "jobs", numbered(8))
        assert refused.value.__notes__ == ["3 messages were refused"]
        assert (refused.value.queue, refused.value.max_length) == ("jobs", 5)
        assert await drain(shop, "jobs") == numbered(5)
        await shop.publish("", "jobs", b"room again")
        assert await drain(shop, "jobs") == [b"room again"]


async def test_a_queue_full_by_bytes_takes_as_much_as_it_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length_bytes=1000, overflow="reject-publish")
        with pytest.raises(QueueFull):
            await shop.publish_many("", "jobs", [bytes(100)] * 12)
        assert len(await drain(shop, "jobs")) == 10


async def test_one_full_queue_of_several_refuses_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("small", max_length=1, overflow="reject-publish")
        await shop.declare_queue("large")
        for queue in ("small", "large"):
            await shop.bind("amq.fanout", queue)
        with pytest.raises(QueueFull):
            await shop.publish_many("amq.fanout", "", numbered(3))
        assert await drain(shop, "small") == await drain(shop, "large") == numbered(1)


async def test_what_was_refused_before_flush_is_told_by_flush(tmp_path: Path) -> None:
    """Found: a refusal that came before anybody waited was forgotten, and flush returned."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=1, overflow="reject-publish")
        async with shop.publisher() as publisher:
            for payload in numbered(3):
                await publisher.send("", "jobs", payload)
            await until(lambda: publisher._outbox.confirmed >= 3)
            with pytest.raises(QueueFull) as refused:
                await publisher.flush()
            assert refused.value.__notes__ == ["2 messages were refused"]
            await publisher.flush()


@pytest.mark.parametrize("waits", [False, True])
async def test_refusals_of_several_kinds_are_counted_each(tmp_path: Path, waits: bool) -> None:
    """Found: the first one, with the number of all: "there is no queue", of 2 that had been full."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=1, overflow="reject-publish")
        async with shop.publisher() as publisher:
            await publisher.send("", "nowhere", b"x", mandatory=True)
            for payload in numbered(3):
                await publisher.send("", "jobs", payload)
            if not waits:
                await until(lambda: publisher._outbox.confirmed >= 4)
            with pytest.raises(Unroutable) as refused:
                await publisher.flush()
            [note] = refused.value.__notes__
            assert note == "3 messages were refused (2 QueueFull, 1 Unroutable)"
            await publisher.flush()


async def test_what_was_refused_before_is_told_with_what_is_refused_now(tmp_path: Path) -> None:
    """Found: not if it was no PublishError, as AccessRefused is none, but at the next flush."""
    async with serving(tmp_path) as broker, client(broker) as shop, shop.publisher() as publisher:
        await publisher.send("", "nowhere", b"x", mandatory=True)
        await until(lambda: publisher._outbox.confirmed >= 1)
        await publisher.send("no such exchange", "jobs", b"x")
        with pytest.raises(UnknownExchange) as refused:
            await publisher.flush()
        [note] = refused.value.__notes__
        assert note.startswith("before that, 1 messages were refused: there is no queue 'nowhere'")


async def test_headers_and_properties_arrive(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.bind("amq.direct", "jobs", "k")
        await shop.publish("amq.direct", "k", b"1", headers={"trace": 7}, ttl=60.0)
        await shop.publish("", "jobs", b"2")
        async with shop.consume("jobs") as deliveries:
            one, two = await take(deliveries, 2)
        assert (one.exchange, one.routing_key, one.headers) == ("amq.direct", "k", {"trace": 7})
        assert one.properties.ttl_us == 60_000_000
        assert (two.exchange, two.routing_key, two.headers) == ("", "jobs", {})


async def test_messages_of_different_size_with_and_without_headers_keep_their_order(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        sent: list[bytes] = []
        async with shop.publisher() as publisher:
            for number in range(200):
                payload = b"%d:" % number + bytes(number * 50 % 7000)
                sent.append(payload)
                headers = {"n": number} if number % 3 else None
                await publisher.send("", "jobs", payload, headers=headers)
        async with shop.consume("jobs") as deliveries:
            found: list[Delivery] = await take(deliveries, 200)
        assert payloads(found) == sent
        assert [one.headers.get("n") for one in found] == [n if n % 3 else None for n in range(200)]


async def test_cc_and_bcc(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        for queue in ("to", "copy", "blind"):
            await shop.declare_queue(queue)
        await shop.publish("", "to", b"x", cc=["copy"], bcc="blind")
        for queue in ("to", "copy", "blind"):
            async with shop.consume(queue) as deliveries:
                (one,) = await take(deliveries, 1)
            assert (one.payload, one.properties.cc, one.properties.bcc) == (b"x", ("copy",), ())


async def test_the_largest_message_and_one_more_byte(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", [b"a" * 60_000, b"b" * 700_000, b"c" * 700_000])
        found = await drain(shop, "jobs")
        assert list(map(len, found)) == [60_000, 700_000, 700_000]


async def test_more_at_once_than_a_broker_takes_in_one_part(tmp_path: Path) -> None:
    """Found: a publisher whose batch was larger than the broker's window waited for ever."""
    config = replace(SMALL, tunnel_window_bytes=128 * 1024)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", [b"x" * 100] * 5000)
        await shop.publish_many("", "jobs", [b"x" * 100] * 5000, headers={"a": 1})
        async with shop.publisher() as publisher:
            for payload in numbered(20_000):
                await publisher.send("", "jobs", payload)
        assert await drain(shop, "jobs") == [*[b"x" * 100] * 10_000, *numbered(20_000)]


async def test_messages_that_fit_a_segment_one_by_one_are_stored(tmp_path: Path) -> None:
    """Found: they were refused as too large, all together."""
    log = replace(SMALL.log, segment_bytes=1 << 18, reserve_bytes=1 << 14)
    async with serving(tmp_path, config=replace(SMALL, log=log)) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        large = [b"%d" % number * 50_000 for number in range(8)]
        await shop.publish_many("", "jobs", large)
        assert await drain(shop, "jobs") == large


async def test_each_caller_is_told_of_its_own_messages(tmp_path: Path) -> None:
    """Found: who had waited for room was told of the refusals of those who came meanwhile."""
    told: dict[str, list[str]] = {"good": [], "full": []}
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("good")
        await shop.declare_queue("full", max_length=1, overflow="reject-publish")
        await shop.publish("", "full", b"x")
        async with shop.publisher(window_bytes=20_000) as publisher, trio.open_nursery() as nursery:

            async def publish(queue: str) -> None:
                try:
                    await publisher.publish("", queue, [b"x" * 5000] * 3)
                    told[queue].append("confirmed")
                except QueueFull as error:
                    told[queue].append(error.queue)

            for _ in range(10):
                nursery.start_soon(publish, "good")
                nursery.start_soon(publish, "full")
        assert told == {"good": ["confirmed"] * 10, "full": ["full"] * 10}
        assert len(await drain(shop, "good")) == 30


async def test_a_publisher_that_was_not_entered_says_so(tmp_path: Path) -> None:
    """Found: it took messages, and nobody sent them."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        publisher = shop.publisher()
        for attempt in (publisher.send("", "jobs", b"x"), publisher.flush()):
            with pytest.raises(RuntimeError, match="async with"):
                await attempt


async def test_a_publisher_takes_nothing_once_its_block_has_been_left(tmp_path: Path) -> None:
    """Found: until its task had had a turn it did, and nobody sent that or said a word. Later it was
    "unknown whether 0 messages were stored"."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            await publisher.send("", "jobs", b"x")
        for attempt in (
            publisher.send("", "jobs", b"y"),
            publisher.send_many("", "jobs", [b"y"]),
            publisher.publish("", "jobs", [b"y"]),
        ):
            with pytest.raises(Unconfirmed, match=r"^the publisher was closed$"):
                await attempt
        await publisher.flush()
        async with shop.numbered_publisher("p") as numbered:
            pass
        with pytest.raises(Unconfirmed, match=r"^the publisher was closed$"):
            await numbered.send(0, "", "jobs", [b"y"])


async def test_pipelined_and_mandatory(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with pytest.raises(Unroutable, match="nobody"):
            async with shop.publisher() as publisher:
                await publisher.send("", "jobs", b"x", mandatory=True)
                await publisher.send("", "nobody", b"x", mandatory=True)
                await publisher.send("", "nobody", b"x")
        assert await drain(shop, "jobs") == [b"x"]


async def test_what_is_refused_after_its_publish_was_cancelled_is_told_by_flush(
    tmp_path: Path,
) -> None:
    """Found: it was told to the waiter that nobody waited for any more."""
    async with (
        serving(tmp_path) as broker,
        client(broker) as shop,
        shop.publisher() as publisher,
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await publisher.publish("", "nobody", [b"x"], mandatory=True)
        assert scope.cancelled_caught
        with pytest.raises(Unroutable):
            await publisher.flush()
        for _ in range(10):
            with trio.CancelScope() as scope:
                scope.cancel()
                await publisher.send("", "nobody", b"x")
                await publisher.flush()
        assert not publisher._outbox._waiters
