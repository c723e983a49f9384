"""How long whoever waits for confirms does so, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from durable.client.channel import Channel
from durable.client.publisher import Publisher
from durable.client.sending import Handed
from durable.errors import Unconfirmed
from durable.protocol.parts import encode_confirm
from mesh.protocol.timers import Timer, Timers
from tests.waiting import virtual_sleep

PATIENCE_S = 10.0


class Deaf:
    """A Channel to a broker that is not there: what it decides the test says."""

    timeout_s, message_bytes_max, cluster = PATIENCE_S, 1000, "broker"

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.timers = Timers()

    def run_beside(self, task: object) -> None:
        pass

    async def connected(self) -> bytes:
        return b"session"

    def check_thread(self) -> None:
        pass

    def silence(self, timeout_s: float) -> str:
        return f"nothing for {timeout_s:g} s"

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = self.timers.at(trio.current_time() + seconds, lambda _now_s: call())
        self._nursery.start_soon(self._run_timers, seconds)
        return timer

    async def _run_timers(self, seconds: float) -> None:
        await virtual_sleep(seconds)
        self.timers.run(trio.current_time())


@asynccontextmanager
async def publishing(*decided_at_s: float) -> AsyncGenerator[tuple[Publisher, Handed, Deaf]]:
    """Two messages that have been handed over, of which one more is decided each time."""
    async with trio.open_nursery() as nursery:
        deaf = Deaf(nursery)
        publisher = Publisher(cast("Channel", deaf), None, 1, 1000)
        publisher.start()
        handed = Handed()
        given = publisher.given("", "jobs", (b"one", b"two"), None, None)
        assert publisher.hand_over_nowait(given, handed)

        async def decide() -> None:
            for sequence, at_s in enumerate(decided_at_s, start=1):
                await virtual_sleep(began_s + at_s - trio.current_time())
                publisher._heard(encode_confirm(sequence, []))

        began_s = trio.current_time()
        nursery.start_soon(decide)
        yield publisher, handed, deaf
        nursery.cancel_scope.cancel()


async def test_in_time(autojump_clock: MockClock) -> None:
    async with publishing(1, 9) as (publisher, handed, deaf):
        assert await publisher.wait_confirmed(handed, PATIENCE_S)
        assert trio.current_time() == pytest.approx(9)
        assert deaf.timers.due_s() is None, "nobody waits any more"


@pytest.mark.parametrize("decided_at_s", [(), (8,), (8, 16)])
async def test_all_of_it_takes_too_long(
    autojump_clock: MockClock, decided_at_s: tuple[float, ...]
) -> None:
    async with publishing(*decided_at_s) as (publisher, handed, _):
        assert not await publisher.wait_confirmed(handed, PATIENCE_S)
        assert trio.current_time() == pytest.approx(10)
        assert publisher.unknown(handed) == 2 - len(decided_at_s[:1])


async def test_a_broker_that_decides_something_is_waited_for_again(
    autojump_clock: MockClock,
) -> None:
    async with publishing(8, 16) as (publisher, handed, deaf):
        await publisher.confirmed(handed)
        assert trio.current_time() == pytest.approx(16)
        assert deaf.timers.due_s() is None


@pytest.mark.parametrize(("decided_at_s", "until_s"), [((), 10), ((8,), 20)])
async def test_a_broker_that_decides_nothing_more_is_not(
    autojump_clock: MockClock, decided_at_s: tuple[float, ...], until_s: float
) -> None:
    async with publishing(*decided_at_s) as (publisher, handed, _):
        with pytest.raises(Unconfirmed, match="nothing for 10 s") as told:
            await publisher.confirmed(handed)
        assert trio.current_time() == pytest.approx(until_s)
        assert told.value.count == 2 - len(decided_at_s)


async def test_whoever_is_cancelled_leaves_no_timer(autojump_clock: MockClock) -> None:
    async with publishing() as (publisher, handed, deaf):
        with trio.move_on_after(1):
            await publisher.wait_confirmed(handed, PATIENCE_S)
        assert deaf.timers.due_s() is None
