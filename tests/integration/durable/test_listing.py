"""Answers that list everything: however much there is, and however small the parts that a client takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trio

import durable
from durable.broker import statistics
from durable.broker.control import Control
from durable.broker.defining import bindings_of, exported
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.broker.statistics import statistics_of
from durable.client.connection import Connection
from durable.definition_forms import export_definitions, to_plain
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
from durable.protocol.listing import merge_listing
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

    def counting(*given: Any) -> Iterator[dict[str, Any]]:
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
                    whole = pieces.join(await anext(tunnel))
                    if whole is not None:
                        found.append(decode_answer(whole))
                        lists = sum(one.number < 50 for one in found)
                        assert made <= lists + 1
            assert made == 49


async def test_more_than_any_client_takes_is_told_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.protocol.listing.BYTES_MAX", 40_000)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        async with client(broker, payload_bytes_max=PART_BYTES) as small:
            session = await small._channel.wait_connected()
            with pytest.raises(BrokerError, match=r"TooLarge .*'limit_bytes': 40000"):
                await small.statistics()
            assert len(await small.bindings()) == len(NAMES)
            assert await small._channel.wait_connected() == session


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Entries at once."""
    monkeypatch.setattr("durable.turns.ENTRIES_AT_ONCE", 10)
    return 10


@pytest.mark.parametrize("operation", ["statistics", "bindings", "export_definitions"])
async def test_others_have_their_turn_when_a_few_entries_are_made(
    tmp_path: Path, operation: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: everything was listed in one turn, with 100,000 queues of several seconds."""
    made = seen = most = 0

    def counting(make: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            nonlocal made
            made += 1
            return make(*given)

        return count

    async def watch() -> None:
        nonlocal seen, most
        while True:
            await trio.lowlevel.checkpoint()
            most, seen = max(most, made - seen), made

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        monkeypatch.setattr(statistics, "_queue", counting(statistics._queue))
        monkeypatch.setattr("durable.broker.defining.to_plain", counting(to_plain))
        async with open_nursery() as nursery:
            nursery.start_soon(watch)
            await getattr(control(broker.hosted("/")), operation)()
            nursery.cancel_scope.cancel()
    assert made >= len(NAMES)
    most = max(most, made - seen)
    assert most <= 2 * few  # Each has one turn in every round, and they come in any order.


def control(running: RunningVhost) -> Control:
    peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
    return Control(running, peer, cast("Any", None), cast("Any", None))


def whole(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for some in parts:
        merge_listing(found, some)
    return found


async def test_what_is_declared_is_listed_as_of_the_first_turn(tmp_path: Path, few: int) -> None:
    """Else an export could have a binding without its queue, and nobody could import it."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        await shop.declare_queue("memory", durability="memory")
        await shop.bind("amq.topic", "memory")
        running = broker.hosted("/")
        peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
        wanted = [await shop.export_definitions(), {"bindings": await shop.bindings()}]
        listings = [exported(running, peer), bindings_of(running, peer.sees)]
        begun = [next(one) for one in listings]
        for name in ("memory", NAMES[0], NAMES[-1]):
            await shop.delete_queue(name)
        await shop.declare_queue("later")
        found = [whole([first, *rest]) for first, rest in zip(begun, listings, strict=True)]
    assert found == wanted
    ends = [[one["destination"] for one in listing["bindings"]] for listing in found]
    assert ends == [NAMES, [*NAMES, "memory"]]


async def test_a_queue_is_counted_in_its_turn_or_left_out_when_it_is_gone(
    tmp_path: Path, few: int
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        telling = statistics_of(broker.hosted("/"), lambda name: name != NAMES[1])
        head, first = next(telling), next(telling)
        for name in (NAMES[0], NAMES[-1]):
            await shop.delete_queue(name)
        await shop.publish("", NAMES[-2], b"counted")
        found = whole([head, first, *telling])
    assert list(found["queues"]) == [NAMES[0], *NAMES[2:-1]]
    assert found["queues"][NAMES[-2]]["ready"] == 1
    assert found["hidden"] == 1
