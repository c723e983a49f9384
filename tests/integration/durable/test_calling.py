"""Calls that are longer than a part: whole or not at all, within limits, and only from who may configure."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
import mesh
from durable.broker.control_session import ControlSession
from durable.broker.listing import encode_listing
from durable.client.connection import Connection
from durable.definition_forms import export_definitions
from durable.definitions import Definitions, QueueDefinition
from durable.errors import AccessRefused, BrokerError
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import Volume
from durable.protocol.calls import (
    CONTROL,
    Answer,
    Call,
    decode_answer,
    decode_call,
    encode_call,
    encode_hello,
)
from durable.protocol.definition_bytes import pack_definitions
from durable.protocol.pieces import PART_BYTES_MAX, in_pieces
from mesh.nursery import open_nursery
from mesh.tunnel import Tunnel
from tests.brokers import QUIET, SMALL, client, node_of, serving
from tests.nodes import node
from tests.waiting import PATIENCE_S, until

PART_BYTES = 1000


def definitions(count: int, vhost: str = "/", first: int = 0) -> dict[str, Any]:
    """Of queues with names in which nothing repeats, so that as many bytes are left of them as there are."""
    letters = random.Random(first)
    names = [f"{number}-{letters.randbytes(100).hex()}" for number in range(first, first + count)]
    return export_definitions(
        Definitions(queues=tuple(QueueDefinition(name=n) for n in names)), vhost
    )


LONG = definitions(50)


async def queues(broker: Connection) -> list[str]:
    return list((await broker.statistics())["queues"])


def control_sessions(broker: durable.Broker) -> set[ControlSession]:
    return broker._sessions.control_sessions


async def test_what_is_exported_in_pieces_is_imported_in_one_call(tmp_path: Path) -> None:
    """Found: over 1 MiB, compressed, it could be exported and not imported."""
    config = replace(SMALL, log=replace(SMALL.log, segment_bytes=1 << 24))
    plain = definitions(12_000)
    assert len(pack_definitions(plain)) > PART_BYTES_MAX
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        assert await shop.import_definitions(plain) == {"queue": 12_000}
        assert await shop.export_definitions() == plain


async def test_several_long_calls_at_once_are_each_whole(tmp_path: Path) -> None:
    """Each of them waits for room, again and again, and others come between their pieces."""
    given = [definitions(50, first=50 * number) for number in range(10)]
    async with (
        serving(tmp_path, payload_bytes_max=PART_BYTES) as broker,
        client(broker, outbox_bytes=4 * PART_BYTES) as shop,
    ):
        with trio.fail_after(PATIENCE_S):
            async with open_nursery() as nursery:
                for one in given:
                    nursery.start_soon(shop.import_definitions, one)
                    nursery.start_soon(shop.declare_queue, "jobs")
        assert len(await queues(shop)) == 501


async def test_more_than_a_broker_takes_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.protocol.calls.CALL_BYTES_MAX", 5000)
    async with serving(tmp_path) as broker, client(broker) as shop:
        session = await shop._channel.wait_connected()
        with pytest.raises(mesh.TooLarge, match=r"import_definitions of .* limit of 5000") as told:
            await shop.import_definitions(LONG)
        assert told.value.size_bytes > told.value.limit_bytes == 5000
        assert await shop._channel.wait_connected() == session


@asynccontextmanager
async def control_tunnel(broker: durable.Broker) -> AsyncIterator[Tunnel]:
    async with (
        node("shop", node_of(broker)) as joined,
        joined.open_tunnel("broker/durable") as tunnel,
    ):
        await tunnel.send(encode_hello(CONTROL, "/"))
        await anext(tunnel)
        yield tunnel


def parts(number: int, plain: dict[str, Any]) -> list[bytes]:
    call = Call(number, "import_definitions", {"definitions": pack_definitions(plain)})
    return list(in_pieces(number, encode_call(call), PART_BYTES))


async def send(tunnel: Tunnel, some: list[bytes]) -> None:
    for part in some:
        await tunnel.send(part)


async def answer(tunnel: Tunnel) -> Answer:
    with trio.fail_after(PATIENCE_S):
        return decode_answer(await anext(tunnel))


async def test_who_may_configure_nothing_is_refused_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(data: bytes) -> Any:
        raise AssertionError("unpacked")

    async with serving(tmp_path) as broker, client(broker, "console") as admin:
        await admin.set_permission("console", configure=".*", write=".*", read=".*")
        await admin.set_permission("shop", write=".*", read=".*")
        async with client(broker) as shop:
            session = await shop._channel.wait_connected()
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr("durable.broker.control.read_packed", unpack)
                with pytest.raises(AccessRefused, match="'shop' may not configure anything: give"):
                    await shop.import_definitions(LONG)
            await admin.set_permission("shop", configure=".*", write=".*", read=".*")
            assert await shop.import_definitions(LONG) == {"queue": 50}
            assert await shop._channel.wait_connected() == session


async def test_who_may_configure_nothing_is_refused_with_the_first_piece(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker, "console") as admin:
        await admin.set_permission("console", configure=".*", write=".*", read=".*")
        async with control_tunnel(broker) as tunnel:
            for number, first in enumerate((1, 3), 7):
                await send(tunnel, parts(number, LONG)[:first])
                told = await answer(tunnel)
                assert (told.number, told.error) == (number, "AccessRefused")
            assert not any(one.long_bytes for one in control_sessions(broker))
            await send(tunnel, [encode_call(Call(9, "vhosts", {}))])
            assert await answer(tunnel) == Answer(9, [])


async def test_who_begins_anew_or_goes_gives_up_what_it_has_begun(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with control_tunnel(broker) as tunnel:
            (session,) = control_sessions(broker)
            await send(tunnel, parts(1, definitions(70))[:-1])
            await until(lambda: session.long_bytes)
            await send(tunnel, parts(2, LONG))
            assert await answer(tunnel) == Answer(2, {"queue": 50})
            assert session.long_bytes == 0
            await send(tunnel, parts(3, LONG)[:-1])
            await until(lambda: session.long_bytes)
        await until(lambda: not control_sessions(broker))


async def test_all_clients_together_keep_no_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = sum(map(len, parts(1, LONG)[:-1])) + 2 * PART_BYTES
    monkeypatch.setattr("durable.broker.control_session.LONG_CALLS_BYTES_MAX", limit)
    async with (
        serving(tmp_path, payload_bytes_max=PART_BYTES) as broker, client(broker) as shop,
    ):  # fmt: skip
        async with control_tunnel(broker) as tunnel:
            await send(tunnel, parts(1, LONG)[:-1])
            await until(lambda: sum(one.long_bytes for one in control_sessions(broker)))
            session = await shop._channel.wait_connected()
            with pytest.raises(BrokerError, match=f"TooLarge .*together .*limit of {limit} bytes"):
                await shop.import_definitions(LONG)
            await send(tunnel, parts(1, LONG)[-1:])
            assert await answer(tunnel) == Answer(1, {"queue": 50})
        assert await shop.import_definitions(definitions(50, first=50)) == {"queue": 50}
        assert await shop._channel.wait_connected() == session


async def test_a_long_call_comes_when_the_one_before_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of a thousand calls under way could keep as much as one may."""
    faults, volume = Faults(), Volume()
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: FaultyDisk(volume, faults))
    released = threading.Event()
    async with serving(tmp_path, config=QUIET) as broker, control_tunnel(broker) as tunnel:
        (session,) = control_sessions(broker)
        faults.before_sync = lambda: released.wait(PATIENCE_S)
        for number in range(1, 4):
            await send(tunnel, parts(number, LONG))
        log = broker.hosted("/").log
        with trio.fail_after(PATIENCE_S):
            await until(lambda: log.statistics().pending_bytes)
            assert 0 < session.long_bytes < sum(map(len, parts(1, LONG)))
            assert session._pieces.kept_bytes == 0
            released.set()
            assert [(await answer(tunnel)).number for _ in range(3)] == [1, 2, 3]


def held_lists() -> int:
    """Empty lists, of which a call may have a million in a megabyte."""
    return sum(1 for one in gc.get_objects() if type(one) is list and not one)


async def test_found_calls_that_make_no_sense_waited_with_all_that_was_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty of a megabyte each, from whoever had a key, made a broker grow by 2.8 GB."""
    free = trio.Event()

    async def slowly(some: Iterator[dict[str, Any]]) -> bytes:
        await free.wait()
        return await encode_listing(some)

    monkeypatch.setattr("durable.broker.control.encode_listing", slowly)
    async with serving(tmp_path) as broker, control_tunnel(broker) as tunnel:
        await tunnel.send(encode_call(Call(1, "statistics", {})))
        before = held_lists()
        junk: dict[str, Any] = {"junk": [[] for _ in range(1000)]}
        for number in range(2, 12):
            await tunnel.send(encode_call(Call(number, "statistics", junk)))
        # Answered at once, while the one that makes sense has its turn.
        answers = [await answer(tunnel) for _ in range(2, 12)]
        assert {one.number for one in answers} == set(range(2, 12))
        assert {one.error for one in answers} == {"Malformed"}
        del junk
        assert held_lists() - before < 1000
        free.set()
        assert (await answer(tunnel)).number == 1


async def test_who_takes_no_answers_keeps_no_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: each was kept until its answer had been taken."""
    answering: list[int] = []
    free = trio.Event()

    async def slowly(session: ControlSession, number: int, answer: bytes) -> None:
        answering.append(number)
        await free.wait()

    class Kept(dict[str, Any]):
        """The arguments, as far as they can be followed."""

    kept: list[weakref.ref[Kept]] = []

    def decoded(whole: bytes) -> Call:
        call = decode_call(whole)
        arguments = Kept(call.arguments)
        kept.append(weakref.ref(arguments))
        return call._replace(arguments=arguments)

    async with serving(tmp_path) as broker, control_tunnel(broker) as tunnel:
        monkeypatch.setattr(ControlSession, "_answer", slowly)
        monkeypatch.setattr("durable.broker.control_session.decode_call", decoded)
        for number in range(1, 4):
            await tunnel.send(encode_call(Call(number, "delete_queue", {"name": "none"})))
        await until(lambda: len(answering) == 3)
        assert [one() for one in kept] == [None] * 3
        free.set()


async def test_a_call_may_be_long_in_one_part_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: only what came in pieces was, so each of a thousand could have a megabyte."""
    long = parts(1, LONG)
    monkeypatch.setattr("durable.broker.control_session.SHORT_CALL_BYTES_MAX", 3000)
    async with serving(tmp_path) as broker, client(broker, "console") as admin:
        await admin.set_permission("console", configure=".*", write=".*", read=".*")
        await admin.set_permission("shop", write=".*", read=".*")
        whole = encode_call(Call(7, "import_definitions", {"definitions": pack_definitions(LONG)}))
        assert len(long) > 1
        async with control_tunnel(broker) as tunnel:
            (session,) = control_sessions(broker) - {
                one for one in control_sessions(broker) if one._peer.cluster != "shop"
            }
            await tunnel.send(whole)
            told = await answer(tunnel)
            assert (told.number, told.error) == (7, "AccessRefused")
            assert session.long_bytes == 0
            await admin.set_permission("shop", configure=".*", write=".*", read=".*")
            limit = len(whole) - 1
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr("durable.broker.control_session.LONG_CALLS_BYTES_MAX", limit)
                await tunnel.send(whole)
                assert (await answer(tunnel)).error == "TooLarge"
            assert session.long_bytes == 0
            await tunnel.send(whole)
            await tunnel.send(encode_call(Call(8, "vhosts", {})))
            both = [await answer(tunnel), await answer(tunnel)]
            assert {one.number: one.result for one in both} == {7: {"queue": 50}, 8: ["/"]}
            assert session.long_bytes == 0
