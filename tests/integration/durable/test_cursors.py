"""Cursors: how far named readers of a stream came, as the broker keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.broker.broker import Broker
from durable.broker.change_writer import CursorUpdates
from durable.broker.reading import _CursorWriter
from durable.client.connection import Connection
from durable.client.records import Records
from durable.errors import BrokerLost, ConsumerCancelled, StoreBusy, UnknownStream
from durable.log.bodies import Missed
from durable.log.log import Log
from durable.vhost.changes import Change
from tests.brokers import QUIET, at, client, numbered, payloads, serving, shop_at, take
from tests.nodes import free_ports
from tests.waiting import PATIENCE_S, until


async def test_a_deleted_cursor_stays_so_over_restarts(tmp_path: Path) -> None:
    """Another one of its name begins where it says."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(4))
        cursors = broker.hosted("/").vhost.registry.stream("audit").cursors
        for name in ("billing", "crm"):
            async with shop.read("audit", start="first", cursor=name) as records:
                await take(records, 2)
                await records.store()
        assert cursors == {"billing": 2, "crm": 2}
        assert await shop.delete_cursor("audit", "billing") is True
        assert await shop.delete_cursor("audit", "billing") is False
        with pytest.raises(UnknownStream):
            await shop.delete_cursor("audits", "billing")
        assert cursors == {"crm": 2}
    for _ in range(2):
        async with serving(tmp_path) as broker, client(broker) as shop:
            assert (await shop.statistics())["streams"]["audit"]["cursors"] == {"crm": 2}
            async with shop.read("audit", start="first", cursor="billing") as records:
                assert payloads(await take(records, 4)) == numbered(4)


async def test_why_a_reader_was_ended_is_said_each_time(tmp_path: Path) -> None:
    """Found: the second error, also that of leaving, said only that the tunnel had ended."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(1))
        records = await shop.read("audit", start="first", cursor="billing").__aenter__()
        await take(records, 1)
        await shop.delete_stream("audit")
        await records.store()
        for receive in (records.take, records.take, lambda: records.__aexit__(None, None, None)):
            with pytest.raises(ConsumerCancelled, match="the stream was deleted"):
                await receive()


async def test_a_cursor_is_kept_when_its_reader_has_been_left(tmp_path: Path) -> None:
    """Found: the next reader began where an earlier `store` had been."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(1000))
        log = broker.hosted("/").log
        async with shop.read("audit", start="first", cursor="billing") as records:
            before = log.statistics().commits
            for _ in range(500):
                await anext(records)
                await records.store()
        assert broker.hosted("/").vhost.registry.stream("audit").cursors == {"billing": 500}
        assert 1 <= log.statistics().commits - before <= 250  # Many with one sync.
        with pytest.raises(RuntimeError, match="async with"):
            await records.store()
        async with shop.read("audit", cursor="billing") as records:
            assert payloads(await take(records, 1)) == [b"500"]


async def test_a_reader_with_a_cursor_goes_on_where_it_was_when_its_broker_is_back(
    tmp_path: Path,
) -> None:
    """Found: it began at its cursor again. What it stores while there is no broker is stored then."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            await shop.declare_stream("audit")
            await shop.publish_many("", "audit", numbered(9))
            records = await shop.read("audit", start="first", cursor="billing").__aenter__()
            await take(records, 2)
            await records.store()
            await take(records, 3)
        await records.store()
        async with serving(tmp_path, **at(port)) as broker:
            assert payloads(await take(records, 2)) == numbered(2, 5)
            await records.__aexit__(None, None, None)
            assert broker.hosted("/").vhost.registry.stream("audit").cursors == {"billing": 5}


class Waiting:
    """In place of `Log.with_room`: whoever wants to append waits for its turn, which the test gives. Of a broker
    that does nothing by itself: a checkpoint would take the turn of another."""

    def __init__(self, log: Log) -> None:
        self._with_room = log.with_room
        self.turns: list[trio.Event] = []

    async def __call__(self, attempt: Callable[[], int]) -> int:
        turn = trio.Event()
        self.turns.append(turn)
        await turn.wait()
        return await self._with_room(attempt)


async def storing(shop: Connection, told: Sequence[int], waiting: Waiting) -> list[Records]:
    """Readers of one cursor; each, one after the other, has taken and stored so many, and waits for room."""
    readers = list[Records]()
    for count in told:
        records = shop.read("audit", start="first", cursor="billing")
        readers.append(await records.__aenter__())
        await take(records, count)
        await records.store()
        await until(lambda: len(waiting.turns) == len(readers))
    return readers


@pytest.mark.parametrize("told", [(2, 4), (4, 2)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_of_cursors_that_wait_for_room_the_last_one_told_stays(
    told: tuple[int, int], order: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: what a session whose connection was lost still waited to write could come behind
    what its reader had stored through the next one, and take it back."""
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(4))
        running = broker.hosted("/")
        waiting = Waiting(running.log)
        monkeypatch.setattr(running.log, "with_room", waiting)
        with trio.fail_after(PATIENCE_S):
            readers = await storing(shop, told, waiting)
            for one in order:
                waiting.turns[one].set()
                await readers[one].__aexit__(None, None, None)  # It has been told: it is kept.
        monkeypatch.undo()  # A broker that ends writes, too.
        assert running.vhost.registry.stream("audit").cursors == {"billing": told[1]}


async def test_a_cursor_that_found_no_room_itself_keeps_no_earlier_one_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may end before there is room, and the earlier one was told that it is kept."""
    async with serving(tmp_path, config=QUIET) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(4))
        running = broker.hosted("/")
        waiting, tried, made = Waiting(running.log), trio.Event(), list[int]()
        change = running.vhost.change

        def busy_once(changes: Sequence[Change], now_us: int) -> int:
            offsets = [offset for *_, offset in changes]
            if offsets == [4] and not tried.is_set():
                tried.set()
                raise StoreBusy(1, "no room")
            made.extend(offsets)
            return change(changes, now_us)

        monkeypatch.setattr(running.log, "with_room", waiting)
        monkeypatch.setattr(running.vhost, "change", busy_once)
        with trio.fail_after(PATIENCE_S):
            earlier, later = await storing(shop, (2, 4), waiting)
            waiting.turns[1].set()
            await tried.wait()
            waiting.turns[0].set()
            await earlier.__aexit__(None, None, None)
            await later.__aexit__(None, None, None)
        monkeypatch.undo()
        assert made == [2, 4]


async def test_leaving_says_when_nobody_knows_whether_a_cursor_is_kept(tmp_path: Path) -> None:
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        async with serving(tmp_path, **at(port)):
            await shop.declare_stream("audit")
            await shop.publish("", "audit", b"")
            records = await shop.read("audit", start="first", cursor="billing").__aenter__()
            await take(records, 1)
        await records.store()
        records._channel.timeout_s = 0.2
        with pytest.raises(BrokerLost):
            await records.__aexit__(None, None, None)


async def never(_: _CursorWriter) -> None:
    await trio.sleep_forever()


async def test_leaving_says_when_a_cursor_was_not_kept_before_its_reader_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: whoever had caught why it was ended could think that the cursor was kept."""
    monkeypatch.setattr(_CursorWriter, "run", never)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish("", "audit", b"")
        with pytest.raises(ConsumerCancelled), trio.fail_after(PATIENCE_S):
            async with shop.read("audit", start="first", cursor="billing") as records:
                await take(records, 1)
                await records.store()
                await shop.delete_stream("audit")
                with suppress(ConsumerCancelled):
                    await records.take()


async def test_a_cursor_is_told_once_for_all_that_is_taken_in_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: a part for each message, of which the broker keeps the last."""
    updates, update = list[int](), _CursorWriter.update

    def count(self: _CursorWriter, offset: int) -> None:
        updates.append(offset)
        update(self, offset)

    monkeypatch.setattr(_CursorWriter, "update", count)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(1000))
        async with shop.read("audit", start="first", cursor="billing") as records:
            for _ in range(1000):
                await anext(records)
                await records.store()
            assert len(updates) < 10
            cursors = broker.hosted("/").vhost.registry.stream("audit").cursors
            await until(lambda: cursors == {"billing": 1000})  # And not only when it is left.
        assert len(updates) <= 10


async def test_a_cursor_is_kept_when_its_reader_fails_right_afterwards(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(10))
        cursors = broker.hosted("/").vhost.registry.stream("audit").cursors
        with pytest.raises(KeyError):
            async with shop.read("audit", start="first", cursor="billing") as records:
                await take(records, 4)
                await records.store()
                raise KeyError
        await until(lambda: cursors == {"billing": 4})


@pytest.mark.parametrize("held", ["wait_durable", "with_room"])
async def test_a_cursor_is_kept_while_one_before_it_is_on_its_way_when_its_reader_fails(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: what came together with the end of its tunnel, while the broker's disk was at an earlier one,
    was not written down."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(10))
        running = broker.hosted("/")
        done, go_on, told = getattr(running.log, held), trio.Event(), list[int]()
        write_cursor = running.change_writer.write_cursor

        async def waiting(argument: Any) -> Any:
            await go_on.wait()
            return await done(argument)

        async def keep(change: Any, updates: CursorUpdates, number: int) -> None:
            told.append(number)
            await write_cursor(change, updates, number)

        monkeypatch.setattr(running.change_writer, "write_cursor", keep)
        with pytest.raises(KeyError):
            async with shop.read("audit", start="first", cursor="billing") as records:
                await take(records, 2)
                monkeypatch.setattr(running.log, held, waiting)
                await records.store()
                await until(lambda: told == [1])
                await take(records, 2)
                await records.store()
                raise KeyError
        await until(lambda: told[1:])  # Its session has ended, but for that.
        go_on.set()
        await until(lambda: running.vhost.registry.stream("audit").cursors == {"billing": 4})


async def test_cursors_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await shop.publish_many("", "audit", numbered(10))
        async with shop.read("audit", start="first", cursor="billing") as records:
            await take(records, 4)
            await records.store()
        streams = broker.hosted("/").vhost.registry.streams
        await until(lambda: streams["audit"].cursors == {"billing": 4})
        async with shop.read("audit", start="first") as records:
            with pytest.raises(ValueError, match="no cursor"):
                await records.store()
    async with serving(tmp_path) as broker, client(broker) as shop:
        async with shop.read("audit", start="first", cursor="billing") as records:
            assert payloads(await take(records, 6)) == numbered(6, 4)
        assert (await shop.statistics())["streams"]["audit"]["cursors"] == {"billing": 4}


async def test_what_a_reader_was_told_of_gaps_is_not_told_again_when_they_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: whoever was more than GAPS_MAX of them behind heard of the earlier ones with the rest."""
    monkeypatch.setattr("durable.vhost.gaps.GAPS_MAX", 3)

    async def lose(broker: Broker, shop: Connection, times: int) -> None:
        running = broker.hosted("/")
        stream = running.vhost.registry.stream("audit")
        for _ in range(times):
            running.vhost.record_gap(
                stream, Missed(bytes(16), 1, "t", 0, 10), running.clock.now_us()
            )
            await shop.publish("", "audit", b"behind a gap")

    async def lost(shop: Connection, count: int, *, store: bool = True) -> int:
        async with shop.read("audit", start="first", cursor="billing") as records:
            told = sum(one.lost for one in await take(records, count))
            if store:
                await records.store()
        return told

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_stream("audit")
        await lose(broker, shop, 4)
        assert await lost(shop, 4) == 40
        await lose(broker, shop, 6)
        assert await lost(shop, 1) == 0, "before the one gap that most have become there is none"
        assert await lost(shop, 5, store=False) == 60
    async with serving(tmp_path) as broker, client(broker) as shop:
        assert await lost(shop, 5) == 60
        await lose(broker, shop, 5)
        assert await lost(shop, 5) == 50
        async with shop.read("audit", start="first") as records:
            assert sum(one.lost for one in await take(records, 15)) == 150
