"""What a program gives that cannot be: refused at once, by name, and nothing of it is sent."""

from __future__ import annotations

import logging
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import durable
import durable.broker.reading
import mesh
from durable.client.connection import Connection
from durable.definition_checks import NAME_BYTES_MAX
from durable.errors import (
    InvalidDefinition,
    TooManyCursors,
    UnknownQueue,
    UnknownStream,
)
from durable.protocol.properties import KEYS_MAX, Properties
from tests.brokers import client, drain, node_of, numbered, serving, take
from tests.entering import only_async_with
from tests.nodes import node
from tests.waiting import until

LONG = "k" * (NAME_BYTES_MAX + 1)
NO_TEXT = "\ud800"
"""Half of a character: no UTF-8."""


async def publish(shop: Connection, exchange: Any, **settings: Any) -> None:
    await shop.publish(exchange, "jobs", b"bad", **settings)


async def test_addresses_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    """Found: no exchange was the default one, and long keys made a dead letter that nobody could get."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for exchange in (None, 5, [""], NO_TEXT, LONG):
            with pytest.raises(InvalidDefinition, match="message: exchange is"):
                await publish(shop, exchange)
        for field in ("cc", "bcc"):
            for key in (LONG, NO_TEXT, 5, ["k"]):
                with pytest.raises(InvalidDefinition, match=f"message: {field} is"):
                    await publish(shop, "", **{field: [key]})
            with pytest.raises(InvalidDefinition, match=f"{field} is .* at most {KEYS_MAX} keys"):
                await publish(shop, "", **{field: ["k"] * (KEYS_MAX + 1)})
        await shop.publish("", "jobs", b"good", cc=[LONG[1:]])
        assert await drain(shop, "jobs") == [b"good"]


async def test_no_exchange_is_not_the_one_of_the_message_before(tmp_path: Path) -> None:
    """Found: it went along with a message of the same key that had properties."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.publisher() as publisher:
            wrong: list[Any] = [{"priority": 1}, 5, ("amq.fanout",)]
            for properties in wrong:
                with pytest.raises(InvalidDefinition, match=r"^message: properties is"):
                    await publisher.send("", "jobs", b"bad", properties=properties)
            await publisher.send("", "jobs", b"good", properties=Properties("amq.fanout"))
            nothing: Any = None
            with pytest.raises(InvalidDefinition, match="message: exchange is None"):
                await publisher.send(nothing, "jobs", b"bad")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ttl", [inf, nan, 1e30, -1, -0.1, "5"]), ("priority", [2**70, 1.5, -1, True, "5"]),
        ("cc", [5, None, b"jobs"]), ("bcc", [5]), ("mandatory", ["no"]),
    ],
)  # fmt: skip
async def test_what_a_message_cannot_have_is_refused_by_name(
    tmp_path: Path, field: str, values: list[Any]
) -> None:
    """Found: an OverflowError, or an error that showed all properties and named none."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for value in values:
            with pytest.raises(InvalidDefinition, match=f"^message: {field} is"):
                await publish(shop, "", **{field: value})
        await shop.publish("", "jobs", b"good")
        assert await drain(shop, "jobs") == [b"good"]


async def test_a_connection_to_what_has_no_name_is_refused_by_name(tmp_path: Path) -> None:
    """Found: an error of the codec, or of nobody's tree, with the first call."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        nameless: list[Any] = [None, 5, "", NO_TEXT, LONG, "a\0b"]
        for name in nameless:
            for field in ("cluster", "vhost"):
                with pytest.raises(InvalidDefinition, match=f"^connection: {field} is"):
                    durable.connect(joined, **{field: name})


@pytest.mark.parametrize("timeout", [-1, -0.5, nan, "5", [5]])
async def test_a_timeout_that_is_no_time_is_refused_by_name(tmp_path: Path, timeout: Any) -> None:
    """Found: the first use of such a connection crashed the node, with all the others on it."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        nothing: Any = None
        for value in (timeout, nothing):
            with pytest.raises(InvalidDefinition, match=r"^connection: timeout is .*want a number"):
                durable.connect(joined, timeout=value)
        shop = durable.connect(joined, timeout=10**400)
        await shop.declare_queue("jobs")
        with pytest.raises(InvalidDefinition, match=r"^message: timeout is .*want a number"):
            await publish(shop, "", timeout=timeout)
        await shop.publish("", "jobs", b"good", timeout=10**400)
        assert await drain(shop, "jobs") == [b"good"]


async def test_what_a_publisher_cannot_have_is_refused_by_name(tmp_path: Path) -> None:
    """Found: with less than no window each send waited for its whole timeout, and an epoch of 1.0
    would have crashed the node when it was packed."""
    publishers: list[tuple[str, list[Any]]] = [
        ("window_bytes", [-1, 1.5, "1", 2**64]), ("epoch", [-1, 1.0, "1", 2**64]),
        ("name", [5, b"till", NO_TEXT]),
    ]  # fmt: skip
    async with serving(tmp_path) as broker, client(broker) as shop:
        for field, values in publishers:
            for value in values:
                given: dict[str, Any] = {"name": "till", field: value}
                for make in (shop.publisher, shop.numbered_publisher):
                    with pytest.raises(InvalidDefinition, match=f"^publisher: {field} is"):
                        make(**given)
        await shop.declare_queue("jobs")
        async with shop.publisher("till", window_bytes=0) as publisher:
            await publisher.publish("", "jobs", numbered(3))
        assert await drain(shop, "jobs") == numbered(3)


async def test_what_a_consumer_or_reader_cannot_have_is_refused_by_name(tmp_path: Path) -> None:
    """Found: an OverflowError, or a consumer that ended as one that does not speak our protocol."""
    consumers: list[tuple[str, list[Any]]] = [
        ("queue", [5, NO_TEXT]), ("prefetch", [2**64, 1.5, "1", -1]), ("prefetch_bytes", [2**64]),
        ("priority", [2**70, -(2**70), "1"]), ("exclusive", [1]), ("no_ack", ["no"]),
    ]  # fmt: skip
    async with serving(tmp_path) as broker, client(broker) as shop:
        for field, values in consumers:
            for value in values:
                with pytest.raises(InvalidDefinition, match=f"^consumer: {field} is"):
                    shop.consume(**{"queue": "jobs", field: value})
        with pytest.raises(InvalidDefinition, match="want false with no_ack"):
            shop.consume("jobs", peek=True, no_ack=True)  # Found: it emptied the queue.
        for field in ("stream", "cursor"):
            for value in (5, NO_TEXT, "c" * 100_000):
                given: dict[str, Any] = {"stream": "audit", field: value}
                with pytest.raises(InvalidDefinition, match=f"^reader: {field} is"):
                    shop.read(**given)


async def test_names_and_arguments_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    """Found: as an answer of somebody who does not speak our protocol, or with a TypeError."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        nameless: list[Any] = [None, [], 5, NO_TEXT]
        for name in nameless:
            for kind, call in (
                ("queue", shop.purge_queue), ("queue", shop.delete_queue),
                ("exchange", shop.delete_exchange), ("stream", shop.delete_stream),
                ("vhost", shop.create_vhost), ("vhost", shop.delete_vhost),
            ):  # fmt: skip
                with pytest.raises(InvalidDefinition, match=f"^{kind}: name is"):
                    await call(name)
            with pytest.raises(InvalidDefinition, match=r"^permission: cluster is"):
                await shop.clear_permission(name)
        maybe: Any = 1
        with pytest.raises(InvalidDefinition, match=r"^queue: if_empty is 1"):
            await shop.delete_queue("jobs", if_empty=maybe)
        with pytest.raises(InvalidDefinition, match=r"^exchange: if_unused is 1"):
            await shop.delete_exchange("orders", if_unused=maybe)
        wrong: list[Any] = [5, {1: 2, "a": 3}, {"a": 3, None: 1}, [("a", 1)]]
        for arguments in wrong:
            with pytest.raises(InvalidDefinition, match=r"^binding: arguments is"):
                await shop.bind("amq.headers", "jobs", arguments=arguments)
        patterns: Any
        for patterns, said in ((5, "5"), ({"a.>": 1}, r"{'a.>': 1}: want a list of mesh patterns")):
            with pytest.raises(InvalidDefinition, match=f"^stream: patterns is {said}"):
                await shop.declare_stream("audit", patterns=patterns)


async def test_settings_that_are_misspelt_are_refused_by_name(tmp_path: Path) -> None:
    """Found: a TypeError that named a class of ours, and not what was meant."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(InvalidDefinition, match=r"queue: .* 'max_len': .* mean max_length\?"):
            await shop.declare_queue("jobs", max_len=1)
        with pytest.raises(InvalidDefinition, match=r"exchange: .* 'typ': .* mean type\?"):
            await shop.declare_exchange("events", typ="topic")
        with pytest.raises(InvalidDefinition, match=r"stream: .* 'max_age': .* mean max_age_s\?"):
            await shop.declare_stream("audit", patterns="a.>", max_age=1)
        assert (await shop.statistics())["queues"] == {}
        await shop.declare_queue("jobs", max_length=1)


async def test_a_call_that_no_broker_takes_costs_itself_only(tmp_path: Path) -> None:
    """Found: the broker ended the connection for it, and the exclusive queues with that."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("mine", exclusive=True)
        with pytest.raises(mesh.TooLarge, match=r"^bind of [0-9]+ bytes exceeds"):
            await shop.bind("amq.headers", "mine", arguments={"size": "x" * (16 << 20)})
        await shop.bind("amq.headers", "mine", arguments={"size": "x" * (1 << 18)})
        assert list((await shop.statistics())["queues"]) == ["mine"]


async def test_payloads_that_are_no_list_are_refused(tmp_path: Path) -> None:
    """Found: a generator was used up by the check, and what it gave was lost without a word."""
    async with serving(tmp_path) as broker, client(broker) as shop, shop.publisher() as publisher:
        await shop.declare_queue("jobs")
        wrong: list[Any] = [(one for one in [b"1"]), {b"1"}, {}, iter([b"1"]), b"1", b"", "", None]
        for payloads in wrong:
            for publish_many in (shop.publish_many, publisher.publish):
                with pytest.raises(TypeError, match="payloads: want a list of bytes, got"):
                    await publish_many("", "jobs", payloads)
        await shop.publish_many("", "jobs", (b"1", b"2"))
        assert await drain(shop, "jobs") == [b"1", b"2"]


async def test_sequences_that_are_none_and_headers_that_are_missing(tmp_path: Path) -> None:
    """Found: a struct.error, with the publisher in between; nothing of it may have been taken."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher("rows") as publisher:
            wrong: list[Any] = ["a", 1.5, None]
            for first in wrong:
                with pytest.raises(InvalidDefinition, match=r"^message: sequence is"):
                    await publisher.send(first, "", "jobs", [b"bad"])
            several: list[Any] = [[], [b"\x80"], [b"\x80"] * 3, ["a", "b"], [None, b"\x80"]]
            for headers in several:
                with pytest.raises(InvalidDefinition, match=r"^message: headers is"):
                    await publisher.send(0, "", "jobs", [b"bad", b"bad"], headers=headers)
            await publisher.send(0, "", "jobs", [b"good"], headers=[b"\x80"])
        assert await drain(shop, "jobs") == [b"good"]


async def test_a_stream_keeps_so_many_cursors_and_no_long_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: one of 100,000 characters was kept, and as many as anybody liked."""
    monkeypatch.setattr(durable.broker.reading, "CURSORS_MAX", 1)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish("", "audit", b"1")
        with monkeypatch.context() as earlier:
            earlier.setattr("durable.client.connection.check_reference", lambda *_: None)
            with pytest.raises(InvalidDefinition, match=r"^reader: cursor is"):
                await shop.read("audit", cursor=LONG).__aenter__()
        cursors = broker.hosted("/").vhost.registry.stream("audit").cursors
        with pytest.raises(
            TooManyCursors
        ):  # On leaving, too: what was asked for has not been kept.
            async with (
                shop.read("audit", start="first", cursor="billing") as records,
                shop.read("audit", start="first", cursor="late") as late,
            ):
                await take(records, 1)
                await records.store()
                await until(lambda: cursors == {"billing": 1})
                await take(late, 1)
                await late.store()
                with pytest.raises(TooManyCursors, match="'audit' already has 1 cursors"):
                    await take(late, 1)
        with pytest.raises(TooManyCursors):
            await shop.read("audit", cursor="another").__aenter__()
        await shop.publish("", "audit", b"2")
        async with shop.read("audit", cursor="billing") as records:
            assert [one.payload for one in await take(records, 1)] == [b"2"]
        assert cursors == {"billing": 1}
        await shop.delete_cursor("audit", "billing")
        async with shop.read("audit", cursor="another"):
            pass


async def test_a_cursor_of_an_earlier_release_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.client.connection.check_reference", lambda *_: None)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", [b"1", b"2"])
        broker.hosted("/").vhost.registry.stream("audit").cursors[LONG] = 1
        async with shop.read("audit", cursor=LONG) as records:
            assert [one.payload for one in await take(records, 1)] == [b"2"]


async def test_a_second_broker_of_one_cluster_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: clients reached either of them, and nobody said a word."""

    def told() -> list[str]:
        return [text for text in caplog.messages if "another broker serves cluster broker" in text]

    with caplog.at_level(logging.WARNING, "durable"):
        async with serving(tmp_path / "one") as broker:
            seeds = [*node_of(broker).endpoints]
            async with serving(tmp_path / "two", seeds=seeds) as other:
                await until(lambda: len(told()) == 2)
                assert seeds[0] in told()[0] + told()[1]
                assert node_of(other).endpoints[0] in told()[0] + told()[1]
        async with serving(tmp_path / "one"):
            assert len(told()) == 2  # Nobody else is here now.


async def test_the_name_of_another_kind_is_not_to_be_declared(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.declare_queue("jobs")
        with pytest.raises(UnknownQueue, match="no queue 'audit': a stream has that name"):
            await shop.purge_queue("audit")
        with pytest.raises(UnknownQueue, match="no queue 'audit': a stream has that name"):
            await shop.delete_queue("audit")
        with pytest.raises(UnknownStream, match="no stream 'jobs': a queue has that name"):
            await shop.read("jobs").__aenter__()
        with pytest.raises(UnknownStream, match="no stream 'jobs': a queue has that name"):
            await shop.delete_stream("jobs")  # Found: False, as of what there is not.


async def test_blocks_say_how_they_are_entered() -> None:
    """Found: Python's words named a class, and said nothing of `async with`."""
    async with node("shop") as shop:
        broker = durable.connect(shop)
        blocks: dict[str, Any] = {
            "consume": broker.consume("jobs"), "read": broker.read("audit"),
            "publisher": broker.publisher(), "numbered_publisher": broker.numbered_publisher("p"),
        }  # fmt: skip
        for call, block in blocks.items():
            await only_async_with(f"broker.{call}", block)


@pytest.mark.parametrize(("us", "year"), [(-(2**63), 1), (2**63 - 1, 9999)])
async def test_a_time_that_is_in_no_calendar_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, us: int, year: int
) -> None:
    """Found: one message of a publisher whose clock said so ended whoever read `published`."""
    clock = SimpleNamespace(time_ns=lambda: us * 1000)
    monkeypatch.setattr("durable.client.publisher.time", clock)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish("", "jobs", b"when")
        async with shop.consume("jobs") as jobs:
            assert (await take(jobs, 1))[0].published.year == year


@pytest.mark.parametrize("key", [None, b"jobs", 5, ["jobs"], NO_TEXT, LONG])
async def test_the_first_key_is_checked_as_any_other(tmp_path: Path, key: Any) -> None:
    """Found: None was taken for the key of the message before, which there was not, and the node crashed."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with pytest.raises(InvalidDefinition, match=r"message: key is .*: want text"):
            await shop.publish("", key, b"bad")
        async with shop.publisher() as publisher:
            with pytest.raises(InvalidDefinition, match=r"message: key is .*: want text"):
                await publisher.send("", key, b"bad")
        async with shop.numbered_publisher("till") as till:
            with pytest.raises(InvalidDefinition, match=r"message: key is .*: want text"):
                await till.send(0, "", key, [b"bad"])
        await shop.publish("", "jobs", b"good")
        assert await drain(shop, "jobs") == [b"good"]
