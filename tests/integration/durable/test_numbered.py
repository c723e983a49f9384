"""Publishers whose callers know their sequences: what is done again is stored once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import durable
from durable.broker.publishing import _publisher_state
from durable.client.numbered_publisher import NumberedPublisher
from durable.errors import (
    Malformed,
    PublisherFenced,
    QueueFull,
    SequenceLost,
    Unconfirmed,
    UnknownExchange,
)
from durable.vhost.publishers import HOLES_MAX, Publisher
from tests.brokers import SMALL, at, client, drain, numbered, serving, shop_at
from tests.nodes import free_ports, node
from tests.waiting import PATIENCE_S, until

NAME = "replay/orders/0"
LARGE = [b"%d" % number * 1000 for number in range(6)]


async def test_a_second_attempt_stores_what_the_first_did_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as first:
            assert await first.send(0, "", "jobs", numbered(300)) == 0
        async with shop.numbered_publisher(NAME) as second:
            assert await second.send(0, "", "jobs", numbered(200)) == 200
            assert await second.send(200, "", "jobs", numbered(200, first=200)) == 100
        assert await drain(shop, "jobs") == numbered(400)


@pytest.mark.parametrize("field", ["publisher", "decided", "holes", "floor"])
async def test_a_broker_that_leaves_out_what_its_version_tells_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Found by reading: a KeyError, and with it the node."""

    def known(publisher: Publisher) -> dict[str, Any]:
        return {name: value for name, value in _publisher_state(publisher).items() if name != field}

    monkeypatch.setattr("durable.broker.publishing._publisher_state", known)
    async with serving(tmp_path) as broker, client(broker) as shop:
        with pytest.raises(Malformed, match=f"a greeting whose {field} is NoneType"):
            async with shop.numbered_publisher(NAME):
                raise AssertionError


async def test_sequences_left_out_are_no_loss_and_may_come_later(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as first:
            for start in range(0, 1000, 100):
                await first.send(start, "", "jobs", numbered(30, first=start))
        async with shop.numbered_publisher(NAME) as second:
            skipped = 0
            for start in range(0, 1000, 100):
                skipped += await second.send(start, "", "jobs", numbered(50, first=start))
        assert skipped == 300
        found = sorted(map(int, await drain(shop, "jobs")))
        assert found == [n for n in range(1000) if n % 100 < 50]


async def test_what_is_unknown_is_counted_in_messages_whatever_was_left_out(tmp_path: Path) -> None:
    """Found: five messages were told as five thousand, for that is where their sequences ended."""
    port = free_ports(1)
    async with shop_at(port) as joined:
        shop = durable.connect(joined, timeout=PATIENCE_S)
        publisher = shop.numbered_publisher(NAME)
        with pytest.raises(Unconfirmed) as told, trio.fail_after(PATIENCE_S):
            async with AsyncExitStack() as stack:
                async with serving(tmp_path, **at(port)):
                    await shop.declare_queue("jobs")
                    await stack.enter_async_context(publisher)
                    await publisher.send(40, "", "jobs", numbered(10))
                    await publisher.flush()
                await publisher.send(1000, "", "jobs", numbered(2))
                await publisher.send(5000, "", "jobs", numbered(3))
                shop._channel.timeout_s = 0.1
        assert told.value.count == 5
        await until(lambda: publisher.ended)
        with pytest.raises(Unconfirmed) as closed:
            await publisher.send(6000, "", "jobs", numbered(1))
        assert closed.value.count == 5


async def test_what_was_refused_is_stored_when_it_comes_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs", max_length=100, overflow="reject-publish")
        with pytest.raises(QueueFull):
            async with shop.numbered_publisher(NAME) as first:
                for start in range(0, 300, 50):
                    await first.send(start, "", "jobs", numbered(50, first=start))
        stored = len(await drain(shop, "jobs"))
        await shop.delete_queue("jobs")
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as second:
            assert await second.send(0, "", "jobs", numbered(300)) == stored
        assert len(await drain(shop, "jobs")) == 300 - stored


async def test_any_number_that_was_refused_here_and_there_is_stored_when_it_comes_again(
    tmp_path: Path,
) -> None:
    """Found: beyond 1,000 holes the second attempt was told that refused ones had been stored."""
    count = 2 * HOLES_MAX + 100

    async def attempt(shop: durable.Connection) -> int:
        before = 0
        async with shop.numbered_publisher(NAME) as publisher:
            for number in range(count):
                exchange = "" if number % 2 else "later"
                before += await publisher.send(number, exchange, "jobs", [b"%d" % number])
        return before

    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with pytest.raises(UnknownExchange):
            await attempt(shop)
        await shop.declare_exchange("later", type="fanout")
        await shop.bind("later", "jobs")
        assert await attempt(shop) == 0
        assert await drain(shop, "jobs") == numbered(count)
        assert await attempt(shop) == count


async def test_what_a_full_queue_refuses_is_refused_to_the_end_of_the_attempt(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_queue("tight", max_length=1, overflow="reject-publish")
        with pytest.raises(QueueFull):
            async with shop.numbered_publisher(NAME) as publisher:
                for number, queue in enumerate(("tight", "tight", "jobs", "jobs")):
                    await publisher.send(number, "", queue, [b"%d" % number])
        assert await drain(shop, "jobs") == []
        assert await drain(shop, "tight") == [b"0"]


async def test_more_gaps_than_are_remembered_are_never_taken_for_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as first:
            for number in range(0, 2 * HOLES_MAX + 100, 2):
                await first.send(number, "", "jobs", [b"%d" % number])
        async with shop.numbered_publisher(NAME) as second:
            with pytest.raises(SequenceLost, match="unknown whether sequence 1 was stored"):
                await second.send(1, "", "jobs", [b"1"])
            assert await second.send(2 * HOLES_MAX, "", "jobs", [b"2000", b"2001"]) == 1
        found = await drain(shop, "jobs")
        assert found[-1] == b"2001"
        assert len(found) == HOLES_MAX + 51


async def test_a_publisher_opened_again_takes_over_from_the_one_that_hangs(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop, client(broker) as other:
        await shop.declare_queue("jobs")
        with pytest.raises(PublisherFenced, match="by another connection of this publisher"):
            async with shop.numbered_publisher(NAME) as hanging:
                await hanging.send(0, "", "jobs", numbered(10))
                await hanging.flush()
                async with other.numbered_publisher(NAME) as second:
                    await second.send(0, "", "jobs", numbered(20))
                await until(lambda: hanging.ended)
                await hanging.send(10, "", "jobs", numbered(5, first=10))
        assert await drain(shop, "jobs") == numbered(20)


async def test_a_restarted_broker_still_knows(tmp_path: Path) -> None:
    for attempt in range(3):
        async with serving(tmp_path) as broker, client(broker) as shop:
            await shop.declare_queue("jobs")
            async with shop.numbered_publisher(NAME) as publisher:
                stored = await publisher.send(5000, "", "jobs", numbered(100 * (attempt + 1)))
            assert stored == 100 * attempt
            found = (await shop.statistics())["queues"]["jobs"]["ready"]
            assert found == 100 * (attempt + 1)


async def test_a_sequence_that_goes_back_is_refused_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as publisher:
            await publisher.send(7, "", "jobs", [b"x"], headers=[b"\x80"])
            with pytest.raises(ValueError, match="sequence 7"):
                await publisher.send(7, "", "jobs", [b"y"])


async def test_what_a_cancelled_send_had_handed_over_is_on_disk_when_flush_returns(
    tmp_path: Path,
) -> None:
    """Found: given again in smaller pieces, it was waited for no longer, nor kept to be sent again."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        values = [b"%d" % one + b"x" * 1000 for one in range(6000)]
        async with shop.numbered_publisher(NAME, window_bytes=1_500_000) as publisher:
            with trio.CancelScope() as scope:
                scope.cancel()
                await publisher.send(0, "", "jobs", values)
            taken = publisher._taken_end
            assert 0 < taken < len(values)
            await publisher.send(0, "", "jobs", values[:2])
            await publisher.flush()
            assert publisher._outbox.confirmed == taken
        assert await drain(shop, "jobs") == values[:taken]


class Narrow:
    """A publisher that takes one of the messages, and finds no room for the others until it is told to."""

    def __init__(self, publisher: NumberedPublisher) -> None:
        self.publisher, self.waits, self.room = publisher, trio.Event(), trio.Event()
        publisher._part_bytes_max = len(LARGE[0])
        self._wait_room, publisher._wait_room = publisher._wait_room, self._held  # type: ignore[method-assign]

    async def _held(self, patience_s: float = inf) -> None:
        self.waits.set()
        await self.room.wait()
        await self._wait_room(patience_s)

    async def send(self, first: int, end: int) -> None:
        await self.publisher.send(first, "", "jobs", LARGE[first:end])


async def test_tasks_that_send_at_once_have_their_turns(tmp_path: Path) -> None:
    """Found: while the first waited for room the others' sequences passed its own, which were lost."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME, window_bytes=0) as publisher:
            narrow = Narrow(publisher)
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(narrow.send, 0, 3)
                    await narrow.waits.wait()
                    nursery.start_soon(narrow.send, 3, 6)
                    await wait_all_tasks_blocked()
                    narrow.room.set()
                with pytest.raises(ValueError, match="sequence 3 is too small, want 6 or more"):
                    await narrow.send(3, 6)
        assert await drain(shop, "jobs") == LARGE


async def test_who_was_cancelled_half_way_gives_the_same_again(tmp_path: Path) -> None:
    """Found: what had been taken was sent twice, and its place in the window was lost for ever."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME, window_bytes=0) as publisher:
            narrow = Narrow(publisher)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(narrow.send, 0, 6)
                await narrow.waits.wait()
                nursery.cancel_scope.cancel()
            narrow.room.set()
            await publisher.flush()  # What was taken is confirmed before it comes again.
            with trio.fail_after(PATIENCE_S):
                await narrow.send(0, 6)
        assert await drain(shop, "jobs") == LARGE


async def test_who_gave_up_on_entering_fences_nobody_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it went on to connect for as long as its node lived, and ended who came after it."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        with trio.CancelScope() as scope:
            publisher = shop.numbered_publisher(NAME)
            monkeypatch.setattr(publisher, "_handle_greeting", lambda _: scope.cancel())
            await publisher.__aenter__()
        assert scope.cancelled_caught
        await until(lambda: publisher.ended)
        await until(lambda: not broker.hosted("/")._publishers)


async def test_nobody_waits_for_ever_for_a_broker_that_is_not_there() -> None:
    async with node("shop") as lonely:
        shop = durable.connect(lonely, timeout=0.2)
        with pytest.raises(durable.DurableError, match="broker"):
            async with shop.numbered_publisher(NAME):
                raise AssertionError


async def test_more_at_once_than_a_broker_takes_in_one_part(tmp_path: Path) -> None:
    """Found: it was sent again and again, and nothing behind it ever left."""
    config = replace(SMALL, tunnel_window_bytes=128 * 1024)
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        async with shop.numbered_publisher(NAME) as publisher:
            await publisher.send(0, "", "jobs", numbered(20_000))
            await publisher.send(20_000, "", "jobs", [b"x"] * 20_000, headers=[b"\x80"] * 20_000)
        assert await drain(shop, "jobs") == [*numbered(20_000), *[b"x"] * 20_000]


async def test_numbers_that_no_log_has_are_refused_at_once(tmp_path: Path) -> None:
    """Found: the broker stored the largest of all, and could not write a snapshot any more."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        for epoch in (-1, 1 << 63):
            with pytest.raises(ValueError, match=f"epoch is {epoch}"):
                shop.numbered_publisher(NAME, epoch=epoch)
        async with shop.numbered_publisher(NAME, epoch=(1 << 63) - 1) as publisher:
            with pytest.raises(ValueError, match="too large"):
                await publisher.send((1 << 63) - 1, "", "jobs", [b"x", b"y"])
            await publisher.send((1 << 63) - 1, "", "jobs", [b"x"])
        assert await drain(shop, "jobs") == [b"x"]


async def test_a_list_that_is_changed_while_another_task_sends_is_stored_as_it_was(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        given = numbered(10)
        async with (
            shop.numbered_publisher("rows") as publisher,
            trio.open_nursery() as nursery,
            publisher._send_lock,
        ):
            nursery.start_soon(publisher.send, 0, "", "jobs", given)
            await wait_all_tasks_blocked()
            given.clear()
        assert await drain(shop, "jobs") == numbered(10)
