"""Connections that break, brokers that come back, and clients that send garbage."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

import durable
import mesh
from durable.broker.sessions import HANDLERS
from durable.client.publisher import Publisher
from durable.errors import BrokerLost, PublisherFenced, QueueFull, Unconfirmed
from durable.protocol.calls import CONSUME, READ, encode_hello
from mesh.errors import TunnelBroken
from tests.brokers import at, client, drain, node_of, numbered, payloads, serving, shop_at, take
from tests.nodes import free_ports, linked, node
from tests.waiting import PATIENCE_S, until


async def test_a_publisher_resends_to_a_restarted_broker_and_nothing_is_stored_twice(
    tmp_path: Path,
) -> None:
    port = free_ports(1)
    count = 3000
    async with shop_at(port) as joined, trio.open_nursery() as nursery:
        shop = durable.connect(joined)
        done = trio.Event()

        async def publish() -> None:
            async with shop.publisher(window_bytes=20_000) as publisher:
                for payload in numbered(count):
                    await publisher.send("", "jobs", payload)
            done.set()

        for restart in range(4):
            async with serving(tmp_path, **at(port)) as broker:
                if not restart:
                    await shop.declare_queue("jobs")
                    nursery.start_soon(publish)
                queue = broker.hosted("/").vhost.registry.queue("jobs")
                await until(lambda: queue.ready >= min(count, (restart + 1) * 700), 20)
        async with serving(tmp_path, **at(port)):
            with trio.fail_after(20):
                await done.wait()
            assert await drain(shop, "jobs") == numbered(count)


async def test_a_publisher_ends_where_no_broker_answers(tmp_path: Path) -> None:
    """Found: leaving its block waited for ever. What was confirmed before is not called unknown."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            publisher = await shop.publisher(window_bytes=1000).__aenter__()
            await publisher.publish("", "jobs", numbered(10))
        assert publisher.stored == 10
        publisher._channel.timeout_s = 0.2
        with pytest.raises(BrokerLost, match=r"no answer within 0\.2 s: "):
            for payload in numbered(200):
                await publisher.send("", "jobs", payload)
        for leave in (publisher.flush(), publisher.__aexit__(None, None, None)):
            with pytest.raises(Unconfirmed, match=r"no answer within 0\.2 s: ") as unknown:
                await leave
            assert 50 < unknown.value.count < 200
        assert publisher.stored == 10


async def test_what_was_refused_and_is_stored_when_it_comes_again_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: what came behind it had been decided before, so nobody was told, and `flush` hung."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        publisher = shop.publisher()
        async with serving(tmp_path, **at(port)) as broker:
            await shop.declare_queue("small", max_length=1, overflow="reject-publish")
            await shop.declare_queue("jobs")
            await shop.publish("", "small", b"full")
            with monkeypatch.context() as patch:
                patch.setattr("durable.broker.confirms.Confirms.confirm", lambda self: None)
                publisher.start()
                await publisher.send("", "small", b"refused")
                await publisher.send("", "jobs", b"stored")
                queue = broker.hosted("/").vhost.registry.queue("jobs")
                await until(lambda: queue.ready == 1)
                await shop.purge_queue("small")
                assert broker.hosted("/").vhost.intake.counts.refused == 1
        async with serving(tmp_path, **at(port)):
            with trio.fail_after(10):
                await publisher.flush()
            assert await drain(shop, "small") == [b"refused"]
            assert await drain(shop, "jobs") == [b"stored"]


async def test_a_broker_that_is_killed_in_the_middle_of_its_answers(tmp_path: Path) -> None:
    """Everything is on disk, nothing of it was confirmed: it comes again, and is known."""
    port = free_ports(1)
    async with shop_at(port) as joined, trio.open_nursery() as nursery:
        shop = durable.connect(joined)
        async with serving(tmp_path, **at(port)) as broker:
            await shop.declare_queue("jobs")
            await shop.publish("", "jobs", b"first")
            running = broker.hosted("/")
            running._publishers.clear()
            nursery.start_soon(shop.publish_many, "", "jobs", numbered(100))
            queue = running.vhost.registry.queue("jobs")
            await until(lambda: queue.ready >= 101)
        async with serving(tmp_path, **at(port)) as broker:
            await until(lambda: not nursery.child_tasks, 20)
            assert await drain(shop, "jobs") == [b"first", *numbered(100)]
            assert (await shop.statistics())["intake"]["duplicates"] == 100


async def silence(*_: object) -> None:
    await trio.sleep_forever()


async def test_what_was_refused_is_not_confirmed_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: the first thing after reconnecting was a confirm of all that stood before what was
    stored last, refused messages among it."""
    port = free_ports(1)
    outcome: list[BaseException] = []
    async with shop_at(port) as joined, trio.open_nursery() as nursery:
        shop = durable.connect(joined)
        async with serving(tmp_path, **at(port)) as broker:
            await shop.declare_queue("jobs")
            await shop.declare_queue("full", max_length=1, overflow="reject-publish")
            await shop.publish("", "full", b"")
            other = durable.connect(joined)
            with monkeypatch.context() as patch:
                patch.setattr("durable.broker.confirms.Confirms.run", silence)
                patch.setattr("durable.broker.confirms.Confirms.confirm", lambda confirms: None)

                async def publish(queue: str, payload: bytes) -> None:
                    try:
                        await other.publish("", queue, payload)
                    except durable.DurableError as error:
                        outcome.append(error)

                nursery.start_soon(publish, "full", b"refused")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(publish, "jobs", b"stored")
                queue = broker.hosted("/").vhost.registry.queue("jobs")
                await until(lambda: queue.ready)
        assert not outcome
        async with serving(tmp_path, **at(port)):
            await until(lambda: not nursery.child_tasks, 20)
            assert [type(error) for error in outcome] == [QueueFull]
            assert await drain(shop, "jobs") == [b"stored"]


async def test_consumers_and_readers_go_on_after_a_restart(tmp_path: Path) -> None:
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined)
        async with serving(tmp_path, **at(port)):
            await shop.declare_queue("jobs")
            await shop.declare_stream("audit")
            for queue in ("jobs", "audit"):
                await shop.bind("amq.fanout", queue)
            await shop.publish_many("amq.fanout", "", numbered(10))
            deliveries = await shop.consume("jobs").__aenter__()
            records = await shop.read("audit", start="first").__aenter__()
            early = await take(deliveries, 10)
            await early[4].ack(multiple=True)
            await deliveries.synced()
            assert payloads(await take(records, 7)) == numbered(7)
        async with serving(tmp_path, **at(port)):
            again = await take(deliveries, 5)
            assert payloads(again) == numbered(5, 5)
            await early[7].ack()  # Of the connection that broke: settles nothing.
            await again[0].ack()
            with pytest.raises(BrokerLost, match="before everything was settled"):
                await deliveries.synced()  # Or what the first one acked would pass for settled.
            await deliveries.synced()
            assert payloads(await take(records, 3)) == numbered(3, 7)
            assert (await shop.statistics())["queues"]["jobs"]["unacked"] == 4
            await deliveries.__aexit__(None, None, None)
            await records.__aexit__(None, None, None)


async def test_consumers_and_readers_go_on_after_they_gave_up_waiting_for_a_broker(
    tmp_path: Path,
) -> None:
    """Found: the next call said that the block had been left. Cancelled, or not within the timeout."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        patient, shop = durable.connect(joined), durable.connect(joined, timeout=1)
        async with serving(tmp_path, **at(port)):
            await patient.declare_queue("jobs")
            await patient.declare_stream("audit")
            deliveries = await shop.consume("jobs").__aenter__()
            records = await shop.read("audit", start="first").__aenter__()
        for feed in (deliveries, records):
            with trio.move_on_after(0.05) as gave_up:
                await feed.take()
            assert gave_up.cancelled_caught
            with pytest.raises(BrokerLost, match="none within 1 s"):
                await feed.take()
        async with serving(tmp_path, **at(port)):
            for queue in ("jobs", "audit"):
                await patient.publish("", queue, b"hello")
            for feed in (deliveries, records):
                with trio.fail_after(20):
                    while True:
                        with suppress(BrokerLost):
                            assert (await feed.take()).payloads == [b"hello"]
                            break
                await feed.__aexit__(None, None, None)
                with pytest.raises(RuntimeError, match="outside of their"):
                    await feed.take()


async def test_a_later_epoch_replaces_a_publisher_that_is_connected(tmp_path: Path) -> None:
    """Found: the older one went on."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        old = await shop.publisher("till", epoch=1).__aenter__()
        await old.publish("", "jobs", [b"1"])
        async with shop.publisher("till", epoch=2) as new:
            await new.publish("", "jobs", [b"2"])
            with pytest.raises(PublisherFenced, match="publisher till of epoch 1 has been"):
                await old.publish("", "jobs", [b"3"])
            with pytest.raises(PublisherFenced) as fenced:
                await old.send("", "jobs", b"4")
            assert fenced.value.publisher == "till"
            await new.publish("", "jobs", [b"5"])
        with pytest.raises(PublisherFenced):
            async with shop.publisher("till", epoch=1) as again:
                await again.publish("", "jobs", [b"6"])
        assert await drain(shop, "jobs") == [b"1", b"2", b"5"]


async def test_no_broker_within_the_timeout(tmp_path: Path) -> None:
    async with node("shop") as joined:
        shop = durable.connect(joined, timeout=0.1)
        with pytest.raises(BrokerLost):
            await shop.declare_queue("jobs")
        with pytest.raises(BrokerLost):
            async with shop.consume("jobs"):
                pass


@pytest.mark.parametrize("kind", [CONSUME, READ])
async def test_a_hello_that_meets_the_end_of_a_broker_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Found by the broker killed 50 times: entering `consume` raised what broke."""
    ends = [TunnelBroken("the broker was killed"), BrokerLost("broker", "its session has ended")]
    serve = HANDLERS[kind]

    async def cut_off(tunnel: mesh.Tunnel, *rest: Any) -> None:
        if not ends:
            await serve(tunnel, *rest)
        elif isinstance(end := ends.pop(0), BrokerLost):
            raise end
        else:
            tunnel.abort(str(end))

    monkeypatch.setitem(HANDLERS, kind, cut_off)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.declare_queue("jobs")
        for queue in ("audit", "jobs"):
            await shop.publish("", queue, b"one")
        feed = shop.consume("jobs") if kind == CONSUME else shop.read("audit", start="first")
        async with feed as deliveries:
            assert payloads(await take(deliveries, 1)) == [b"one"]
    assert not ends


async def test_those_who_wait_are_told_when_their_own_node_leaves(tmp_path: Path) -> None:
    """Found: they waited for their timeout."""
    ends: list[type] = []
    async with trio.open_nursery() as nursery:
        async with node("shop") as joined:
            shop = durable.connect(joined, timeout=1000)

            async def expect(call: Any) -> None:
                try:
                    await call
                except mesh.MeshError as error:
                    ends.append(type(error))

            nursery.start_soon(expect, shop.declare_queue("jobs"))
            nursery.start_soon(expect, shop.publish("", "jobs", b""))
            nursery.start_soon(expect, shop.consume("jobs").__aenter__())
            await trio.testing.wait_all_tasks_blocked()
        await until(lambda: len(ends) >= 3)
        # Found: only the first was told; the others' messages waited for a task that could not begin.
        for _ in range(2):
            with trio.fail_after(10), pytest.raises(mesh.NodeClosed):
                await shop.publish("", "jobs", b"")


GARBAGE = [
    b"",
    b"\x00",
    b"\xc1" * 50,
    b"A",
    b"A" + b"\xff" * 17,
    b"K" + b"\xff" * 8,
    b"MB\x01\x00" * 30,
]


def hellos(session: bytes) -> dict[str, bytes]:
    return {
        "control": encode_hello("control", "/"),
        "publish": encode_hello(
            "publish", "/", session=session, publisher=b"p" * 16, epoch=1, oldest=0
        ),
        "consume": encode_hello("consume", "/", session=session, queue="jobs"),
        "read": encode_hello("read", "/", session=session, stream="audit", cursor=""),
    }


@pytest.mark.parametrize("kind", ["", "control", "publish", "consume", "read"])
async def test_garbage_ends_its_tunnel_and_nothing_else(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        await linked(joined, node_of(broker))
        shop = durable.connect(joined)
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        await shop.publish("", "jobs", b"before")
        for garbage in GARBAGE:
            if (kind, garbage) == ("publish", b""):
                continue  # No batches at all: nothing is wrong with that.
            caplog.clear()
            with caplog.at_level(logging.INFO, "durable"):
                async with joined.open_tunnel("broker/durable") as tunnel:
                    if kind:
                        await tunnel.send(hellos(shop._channel.session)[kind])
                        await anext(tunnel)
                    await tunnel.send(garbage)
                    with trio.fail_after(10):
                        said = [part async for part in tunnel if part[:1] == b"E"]
            assert len(said) == 1, garbage
            assert msgpack.unpackb(said[0][1:])[0] == "Malformed"
            assert [record.name for record in caplog.records] == ["durable"], garbage
        await shop.publish("", "jobs", b"after")
        assert await drain(shop, "jobs") == [b"before", b"after"]


async def test_a_tunnel_that_takes_next_to_nothing_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by reading: the greeting that it could not take was a stack trace in the log."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        await linked(joined, node_of(broker))
        with caplog.at_level(logging.WARNING):
            async with joined.open_tunnel("broker/durable", window_bytes=8) as tunnel:
                await tunnel.send(encode_hello("control", "/"))
                with trio.fail_after(10):
                    assert [part async for part in tunnel] == []
        (said,) = [record.getMessage() for record in caplog.records]
        assert "the tunnel takes parts of 8 bytes" in said


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("nonsense", {}),
    ("publish", {}),
    ("publish", {"publisher": b"short", "epoch": 1, "oldest": 0}),
    ("publish", {"publisher": b"p" * 16, "epoch": -1, "oldest": 0}),
    ("publish", {"publisher": b"p" * 16, "epoch": "x", "oldest": 0}),
    ("publish", {"publisher": b"p" * 16, "epoch": 1, "oldest": -7}),
    ("publish", {"publisher": b"p" * 16, "epoch": 2**63, "oldest": 0}),
    ("publish", {"publisher": b"p" * 16, "epoch": 1, "oldest": 2**63}),
    ("consume", {}),
    ("consume", {"queue": 5}),
    ("consume", {"queue": "jobs", "prefetch": "many"}),
    ("consume", {"queue": "jobs", "no_ack": 1}),
    ("read", {}),
    ("read", {"stream": "audit", "start": []}),
    ("read", {"stream": "audit", "start": -1}),
    ("read", {"stream": "audit", "cursor": 5}),
]


@pytest.mark.parametrize(("kind", "fields"), IMPOSSIBLE)
async def test_a_hello_that_cannot_be(tmp_path: Path, kind: str, fields: dict[str, Any]) -> None:
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        shop = durable.connect(joined)
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        async with joined.open_tunnel("broker/durable") as tunnel:
            await tunnel.send(encode_hello(kind, "/", session=shop._channel.session, **fields))
            with trio.fail_after(10):
                (said,) = [part async for part in tunnel]
        assert said[:1] == b"E"
        assert msgpack.unpackb(said[1:])[0] == "Malformed"
        await shop.publish("", "jobs", b"x")


async def test_a_session_of_another_cluster_cannot_be_used(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as broker,
        client(broker) as shop,
        node("crm", node_of(broker)) as crm,
    ):
        await shop.declare_queue("jobs")
        async with crm.open_tunnel("broker/durable") as tunnel:
            await tunnel.send(
                encode_hello("consume", "/", session=shop._channel.session, queue="jobs")
            )
            (said,) = [part async for part in tunnel]
        assert msgpack.unpackb(said[1:])[0] == "BrokerLost"


async def test_messages_that_cannot_be_are_told_to_who_sends_them(tmp_path: Path) -> None:
    """Found: the broker found out, and ended the connection's publisher for good."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"1")
        wrong: list[dict[str, Any]] = [
            {"priority": 10}, {"priority": -1}, {"ttl": -1.0}, {"cc": ["k"] * 1001}, {"cc": [5]},
            {"key": "\ud800"}, {"key": "k" * 70_000}, {"payload": bytes(5 << 20)},
            {"payload": bytearray(5)}, {"headers": {"a": bytes(1 << 20)}},
        ]  # fmt: skip
        for fields in wrong:
            asked: dict[str, Any] = {"exchange": "", "key": "jobs", "payload": b"x", **fields}
            with pytest.raises((ValueError, TypeError, mesh.MeshError)):
                await shop.publish(**asked)
        with pytest.raises(TypeError):
            await shop.publish_many("", "jobs", [b"not taken", "x"])  # type: ignore[list-item]
        await shop.publish("", "jobs", b"2")
        assert await drain(shop, "jobs") == [b"1", b"2"]


async def test_the_largest_message_with_the_largest_headers(tmp_path: Path) -> None:
    """Found: a part that was larger than the tunnel takes was sent again for ever."""
    config = durable.BrokerConfig(log=durable.LogConfig(segment_bytes=1 << 24, free_bytes_min=0))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"small")
        publisher: Publisher = shop._own_publisher()
        most = shop._channel.message_bytes_max
        headers = {"a": bytes(60_000)}
        with trio.fail_after(20):
            await publisher.send("", "jobs", bytes(60_000), headers=headers)
            await publisher.send("", "jobs", bytes(most - 60_100), headers=headers)
            await publisher.send("", "jobs", bytes(100_000))
            await publisher.publish("", "jobs", [bytes(most - 50)])
            with pytest.raises(
                mesh.TooLarge, match=f"{most} bytes .*--window-size and payload_bytes"
            ):
                await shop.publish("", "jobs", bytes(most + 1))
            found = await drain(shop, "jobs")
        assert list(map(len, found)) == [5, 60_000, most - 60_100, 100_000, most - 50]


async def test_more_at_once_than_a_segment_takes_is_refused(tmp_path: Path) -> None:
    """Found: it was sent again for ever."""
    config = durable.BrokerConfig(
        log=durable.LogConfig(segment_bytes=1 << 16, reserve_bytes=1 << 12, free_bytes_min=0)
    )
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with pytest.raises(durable.DurableError, match="more than a segment"), trio.fail_after(10):
            await shop.publish("", "jobs", bytes(100_000))
        await shop.publish("", "jobs", bytes(10_000))
        assert list(map(len, await drain(shop, "jobs"))) == [10_000]
