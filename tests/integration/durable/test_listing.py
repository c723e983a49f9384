"""Answers that list everything: however much there is, and however small the parts that a client takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.broker.statistics import statistics_of
from durable.client.connection import Connection
from durable.definition_forms import export_definitions
from durable.definitions import (
    BindingDefinition,
    Definitions,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import BrokerError
from durable.protocol.calls import (
    CONTROL,
    Answer,
    Call,
    decode_answer,
    encode_call,
    encode_hello,
)
from durable.protocol.pieces import Pieces
from mesh.nursery import open_nursery
from tests.brokers import client, node_of, numbered, serving, take
from tests.nodes import node
from tests.waiting import PATIENCE_S, until

NAMES = [f"orders.{number}" for number in range(200)]
PART_BYTES = 1000
PLAIN = export_definitions(
    Definitions(
        queues=tuple(QueueDefinition(name=name) for name in NAMES),
        streams=(StreamDefinition(name="audit"),),
        bindings=tuple(
            BindingDefinition(exchange="amq.topic", destination=name, key=name) for name in NAMES
        ),
    ),
    "/",
)


async def test_what_is_longer_than_a_part_is_listed_whole(tmp_path: Path) -> None:
    """Found: of 99,000 queues `statistics` was TooLarge."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        wanted = await everything(shop)
        async with client(broker, payload_bytes_max=PART_BYTES) as small:
            found = await everything(small)
    assert found[0] == NAMES
    assert len(found[1]) == len(NAMES)
    assert found == wanted


async def everything(broker: Connection) -> tuple[list[str], list[Any], dict[str, Any]]:
    names = list((await broker.statistics())["queues"])
    return names, await broker.bindings(), await broker.export_definitions()


async def test_cursors_are_listed_whole(tmp_path: Path) -> None:
    names = [f"{number}-{'c' * 200}" for number in range(8)]
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(1))
        for name in names:
            async with shop.read("audit", start="first", cursor=name) as records:
                await take(records, 1)
                await records.store()
        async with client(broker, payload_bytes_max=PART_BYTES) as small:
            found = (await small.statistics())["streams"]["audit"]["cursors"]
    assert found == dict.fromkeys(names, 1)


async def test_several_long_answers_at_once_are_each_whole(tmp_path: Path) -> None:
    """Each of them waits for room, again and again."""
    async with serving(tmp_path, outbox_bytes=4 * PART_BYTES) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        async with client(broker, payload_bytes_max=PART_BYTES) as small:
            found = await several(small)
    assert found == [NAMES] * 20


async def several(small: Connection) -> list[list[str]]:
    """Names, asked for twenty times; other calls are answered between the pieces."""
    found: list[list[str]] = []

    async def ask() -> None:
        found.append(list((await small.statistics())["queues"]))
        found.append([one["name"] for one in (await small.export_definitions())["queues"]])

    with trio.fail_after(PATIENCE_S):
        async with open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
                nursery.start_soon(small.declare_queue, NAMES[0])
    return found


async def test_who_reads_no_answer_has_one_made_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def counting(*given: Any) -> dict[str, Any]:
        nonlocal made
        made += 1
        return statistics_of(*given)

    monkeypatch.setattr("durable.broker.control.statistics_of", counting)
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        await durable.connect(joined).import_definitions(PLAIN)
        async with joined.open_tunnel("broker/durable", window_bytes=PART_BYTES) as tunnel:
            await tunnel.send(encode_hello(CONTROL, "/"))
            await anext(tunnel)
            for number in range(1, 50):
                await tunnel.send(encode_call(Call(number, "statistics", {})))
            await tunnel.send(encode_call(Call(50, "vhosts", {})))
            await until(lambda: made > 0)
            pieces, found = Pieces(1 << 20), list[Answer]()
            with trio.fail_after(PATIENCE_S):
                while len(found) < 50:
                    whole = pieces.whole(await anext(tunnel))
                    if whole is not None:
                        found.append(decode_answer(whole))
                        lists = sum(one.number < 50 for one in found)
                        assert made <= lists + 1
            assert made == 49


async def test_more_than_any_client_takes_is_told_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.protocol.calls.ANSWER_BYTES_MAX", 5000)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        async with client(broker, payload_bytes_max=PART_BYTES) as small:
            session = await small._channel.connected()
            with pytest.raises(BrokerError, match=r"TooLarge .*'limit_bytes': 5000"):
                await small.statistics()
            assert len(await small.bindings()) == len(NAMES)
            assert await small._channel.connected() == session
