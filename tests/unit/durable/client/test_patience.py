"""How long whoever waits for confirms does so, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.client.channel import Channel
from durable.client.deliveries import Deliveries, _Session
from durable.client.pending_confirms import PendingConfirms
from durable.client.publisher import Publisher
from durable.client.records import Records
from durable.errors import Unconfirmed
from durable.protocol.parts import ACK, SETTLED, encode_confirm, encode_number
from mesh.time_limits import PARTS
from mesh.tunnel import Tunnel
from mesh.waker import Bell
from tests.driving import Ticking, driving
from tests.waiting import virtual_sleep

PATIENCE_S = 10.0


class Deaf:
    """A Channel to a broker that is not there: what it decides the test says."""

    timeout_s, message_bytes_max, cluster = PATIENCE_S, 1000, "broker"

    def __init__(self, nursery: trio.Nursery) -> None:
        core = Ticking()
        driver, self.timers = driving(core), core.timers
        self.after, self.within = driver.after, driver.within
        nursery.start_soon(driver._run_timers)

    def run_beside(self, task: object) -> None:
        pass

    async def wait_connected(self) -> bytes:
        return b"session"

    def check_thread(self) -> None:
        pass

    def timeout_reason(self, timeout_s: float) -> str:
        return f"nothing for {timeout_s:g} s"


@asynccontextmanager
async def publishing(
    *decided_at_s: float,
) -> AsyncGenerator[tuple[Publisher, PendingConfirms, Deaf]]:
    """Two messages that have been handed over, of which one more is decided each time."""
    async with trio.open_nursery() as nursery:
        deaf = Deaf(nursery)
        publisher = Publisher(cast("Channel", deaf), None, 1, 1000)
        publisher.start()
        pending = PendingConfirms()
        given = publisher.given("", "jobs", (b"one", b"two"), None, None)
        assert publisher.hand_over_nowait(given, pending)

        async def decide() -> None:
            for sequence, at_s in enumerate(decided_at_s, start=1):
                await virtual_sleep(began_s + at_s - trio.current_time())
                publisher._handle_part(encode_confirm(sequence, []))

        began_s = trio.current_time()
        nursery.start_soon(decide)
        yield publisher, pending, deaf
        nursery.cancel_scope.cancel()


async def test_in_time(autojump_clock: MockClock) -> None:
    async with publishing(1, 9) as (publisher, pending, deaf):
        assert await publisher.wait_confirmed(pending, PATIENCE_S)
        assert trio.current_time() == pytest.approx(9)
        assert deaf.timers.due_s() == inf, "nobody waits any more"


@pytest.mark.parametrize("decided_at_s", [(), (8,), (8, 16)])
async def test_all_of_it_takes_too_long(
    autojump_clock: MockClock, decided_at_s: tuple[float, ...]
) -> None:
    async with publishing(*decided_at_s) as (publisher, pending, _):
        assert not await publisher.wait_confirmed(pending, PATIENCE_S)
        assert trio.current_time() == pytest.approx(10)
        assert publisher.unknown(pending) == 2 - len(decided_at_s[:1])


async def test_a_broker_that_decides_something_is_waited_for_again(
    autojump_clock: MockClock,
) -> None:
    async with publishing(8, 16) as (publisher, pending, deaf):
        await publisher.confirmed(pending)
        assert trio.current_time() == pytest.approx(16)
        assert deaf.timers.due_s() == inf


@pytest.mark.parametrize(("decided_at_s", "until_s"), [((), 10), ((8,), 20)])
async def test_a_broker_that_decides_nothing_more_is_not(
    autojump_clock: MockClock, decided_at_s: tuple[float, ...], until_s: float
) -> None:
    async with publishing(*decided_at_s) as (publisher, pending, _):
        with pytest.raises(Unconfirmed, match="nothing for 10 s") as told:
            await publisher.confirmed(pending)
        assert trio.current_time() == pytest.approx(until_s)
        assert told.value.count == 2 - len(decided_at_s)


async def test_whoever_is_cancelled_leaves_no_timer(autojump_clock: MockClock) -> None:
    async with publishing() as (publisher, pending, deaf):
        with trio.move_on_after(1):
            await publisher.wait_confirmed(pending, PATIENCE_S)
        assert deaf.timers.due_s() == inf


async def answered_after_a_block(
    clock: MockClock, wait: Callable[[], Awaitable[object]], answer: Callable[[], object]
) -> None:
    """`wait`, while which the loop is blocked for longer than it may take, before what is asked has left."""
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            await wait()

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        clock.jump(PATIENCE_S + 1)
        for _ in range(PARTS - 1):
            await wait_all_tasks_blocked()
            clock.jump(PATIENCE_S / PARTS - 0.01)
        await wait_all_tasks_blocked()
        answer()


async def test_who_publishes_has_time_left_after_its_loop_was_blocked(
    mock_clock: MockClock,
) -> None:
    """Found by reading: no answer within `timeout`, it was said, of what had not left yet."""
    async with publishing() as (publisher, pending, _):

        async def wait() -> None:
            assert await publisher.wait_confirmed(pending, PATIENCE_S)

        await answered_after_a_block(
            mock_clock, wait, lambda: publisher._handle_part(encode_confirm(2, []))
        )


async def test_who_waits_for_room_has_time_left_after_its_loop_was_blocked(
    mock_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        publisher = Publisher(cast("Channel", Deaf(nursery)), None, 1, 1)
        publisher.start()
        await publisher.send("", "jobs", b"one")
        publisher._next_part()
        await answered_after_a_block(
            mock_clock,
            lambda: publisher._wait_room(PATIENCE_S),
            lambda: publisher._handle_part(encode_confirm(publisher._barrier(), [])),
        )
        nursery.cancel_scope.cancel()


LATE = 20
"""Turns in which the time is over and the answer there: who is first is left to chance."""


async def test_room_that_there_is_when_a_late_loop_looks_is_in_time(mock_clock: MockClock) -> None:
    """Found: where a handler had taken longer than `timeout`, every other one that waited got BrokerLost."""
    async with trio.open_nursery() as nursery:
        publisher = Publisher(cast("Channel", Deaf(nursery)), None, 1, 1)
        publisher.start()

        async def decide(decided: trio.Event) -> None:
            await decided.wait()
            publisher._handle_part(encode_confirm(publisher._barrier(), []))

        for _ in range(LATE):
            decided = trio.Event()
            await publisher.send("", "jobs", b"one")
            publisher._next_part()
            nursery.start_soon(publisher._wait_room, PATIENCE_S)
            nursery.start_soon(decide, decided)
            await wait_all_tasks_blocked()
            mock_clock.jump(PATIENCE_S + 1)
            decided.set()
            await wait_all_tasks_blocked()
            assert not publisher._is_full()
        nursery.cancel_scope.cancel()


class Settled:
    """A tunnel by which the broker says this, when the test does."""

    broken = False

    def __init__(self) -> None:
        self._bell = Bell()
        self._said: int | None = None

    def says(self, number: int) -> None:
        self._said = number
        self._bell.wake()

    async def send(self, part: bytes) -> None: ...

    async def __anext__(self) -> bytes:
        while self._said is None:
            await self._bell.wait()
        number, self._said = self._said, None
        return encode_number(SETTLED, number)


async def beside_an_answer(
    clock: MockClock, wait: Callable[[], Awaitable[None]], answer: Callable[[], object]
) -> None:
    """`wait`, whose time is over when the answer has come, in a turn of a loop that was late."""

    async def read(readable: trio.Event) -> None:
        await readable.wait()
        answer()

    async with trio.open_nursery() as nursery:
        readable = trio.Event()
        nursery.start_soon(wait)
        nursery.start_soon(read, readable)
        await wait_all_tasks_blocked()
        clock.jump(PATIENCE_S + 1)
        readable.set()


async def test_what_is_settled_when_a_late_loop_looks_is_so_in_time(mock_clock: MockClock) -> None:
    """Found: `synced` raised BrokerLost, of what the broker had said it has on disk."""
    tunnel = Settled()
    async with trio.open_nursery() as nursery:
        deliveries = Deliveries(cast("Channel", Deaf(nursery)), "jobs", {})
        session = _Session(cast("Tunnel", tunnel), deliveries._count_lost)
        deliveries._tunnel, deliveries._session = cast("Tunnel", tunnel), session
        nursery.start_soon(session.run)
        for number in range(LATE):
            session.settle(ACK, number, number + 1)
            await beside_an_answer(mock_clock, deliveries.synced, partial(tunnel.says, number + 1))
            assert not session.unsettled
        nursery.cancel_scope.cancel()


async def test_a_cursor_that_is_kept_when_a_late_loop_looks_is_so_in_time(
    mock_clock: MockClock,
) -> None:
    """Found: leaving raised BrokerLost, of a cursor that the broker had said it has on disk."""
    tunnel = Settled()
    async with trio.open_nursery() as nursery:
        records = Records(cast("Channel", Deaf(nursery)), "audit", "first", "billing")
        records._tunnel = cast("Tunnel", tunnel)
        for number in range(LATE):
            records._requested_cursor = number
            await beside_an_answer(
                mock_clock, records._wait_cursor_durable, partial(tunnel.says, number)
            )
            assert records._durable_cursor == number
        nursery.cancel_scope.cancel()


async def test_who_waits_for_settlements_or_a_cursor_has_time_left_after_its_loop_was_blocked(
    mock_clock: MockClock,
) -> None:
    tunnel = Settled()
    async with trio.open_nursery() as nursery:
        deaf = cast("Channel", Deaf(nursery))
        deliveries, records = Deliveries(deaf, "jobs", {}), Records(deaf, "audit", "first", "all")
        session = _Session(cast("Tunnel", tunnel), deliveries._count_lost)
        deliveries._tunnel = records._tunnel = cast("Tunnel", tunnel)
        deliveries._session = session
        nursery.start_soon(session.run)
        session.settle(ACK, 0, 1)
        await answered_after_a_block(mock_clock, deliveries.synced, lambda: tunnel.says(1))
        records._requested_cursor = 1
        await answered_after_a_block(
            mock_clock, records._wait_cursor_durable, lambda: tunnel.says(1)
        )
        nursery.cancel_scope.cancel()


class Released:
    """A tunnel that the broker ends when the test does: it has let go of the consumer."""

    def __init__(self) -> None:
        self.ended, self.heard = trio.Event(), False

    async def send_eof(self) -> None: ...

    def __aiter__(self) -> Released:
        return self

    async def __anext__(self) -> bytes:
        await self.ended.wait()
        self.heard = True
        raise StopAsyncIteration


async def test_who_leaves_hears_that_a_broker_has_let_go_of_it_after_its_loop_was_blocked(
    mock_clock: MockClock,
) -> None:
    """Found by reading: it went on, and what it had left unsettled was not ready again yet."""
    async with trio.open_nursery() as nursery:
        deliveries = Deliveries(cast("Channel", Deaf(nursery)), "jobs", {})
        for during in (*[beside_an_answer] * LATE, answered_after_a_block):
            tunnel = Released()
            leave = partial(deliveries._wait_released, cast("Tunnel", tunnel))
            await during(mock_clock, leave, tunnel.ended.set)
            assert tunnel.heard
        nursery.cancel_scope.cancel()
