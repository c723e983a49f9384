"""How a connection comes to its broker, and back, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.client.channel import RETRY_S, Channel
from durable.client.numbered_publisher import NumberedPublisher
from durable.errors import BrokerLost
from durable.protocol.calls import Answer, encode_answer
from mesh.errors import NoMembers
from mesh.node import Node
from mesh.tunnel import Tunnel
from tests.driving import Ticking, driving
from tests.waiting import virtual_sleep

SETTLE_S, TIMEOUT_S = 2.0, 1.0
TURNS = 3
"""From an answer's first frame to what it was waited for."""


class Lonely:
    """A node that finds no broker."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.looked_s: list[float] = []
        """When it began to look for one, and when it gave up."""
        driver = driving(Ticking())
        nursery.start_soon(driver._run_timers)
        self.after, self.within = driver.after, driver.within

    def check_thread(self) -> None: ...
    def end_if_forked(self) -> None: ...

    def run_beside(self, task: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(task)

    @asynccontextmanager
    async def open_tunnel(self, target: str, **_: Any) -> AsyncIterator[Tunnel]:
        self.looked_s.append(trio.current_time())
        await virtual_sleep(SETTLE_S)
        self.looked_s.append(trio.current_time())
        raise NoMembers(target, SETTLE_S)
        yield


class Answering(Lonely):
    """A node whose tunnel is its broker, which answers a call when the test says so."""

    part_bytes_max = 1000

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.answers = trio.Event()
        self._calls = 0

    @asynccontextmanager
    async def open_tunnel(self, target: str, **_: Any) -> AsyncIterator[Tunnel]:
        yield cast("Tunnel", self)

    async def send(self, part: bytes) -> None: ...

    async def __anext__(self) -> bytes:
        return encode_answer(Answer(0, {"session": b"session"}))

    async def each(self, heard: Callable[[bytes], bool]) -> None:
        while True:
            await self.answers.wait()
            self.answers = trio.Event()
            self._calls += 1
            heard(encode_answer(Answer(self._calls, "done")))


async def test_an_answer_that_is_there_when_a_late_loop_looks_is_in_time(
    mock_clock: MockClock,
) -> None:
    """Found: where a handler had taken longer than `timeout`, every other call raised BrokerLost."""
    async with trio.open_nursery() as nursery:
        node = Answering(nursery)
        channel = Channel(cast("Node", node), "broker", "/", timeout_s=1.0)
        results = []

        async def call() -> None:
            results.append(await channel.call("vhosts"))

        for number in range(1, 21):  # Who is first in such a turn is left to chance.
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            mock_clock.jump(2.0)
            node.answers.set()
            await wait_all_tasks_blocked()
            assert results == ["done"] * number
        nursery.cancel_scope.cancel()


class Distant(Answering):
    """A node whose broker greets when the test says so, several turns later: once for each tunnel."""

    @asynccontextmanager
    async def open_tunnel(self, target: str, **_: Any) -> AsyncIterator[Tunnel]:
        await self.answers.wait()
        self.answers = trio.Event()
        for _turn in range(TURNS):
            await trio.lowlevel.checkpoint()
        yield cast("Tunnel", self)

    async def each(self, heard: Callable[[bytes], bool]) -> None:
        await trio.sleep_forever()


async def blocked(clock: MockClock, node: Distant) -> None:
    """The loop is, for longer than the timeout, while the broker answers; then all goes on as far as it can."""
    await wait_all_tasks_blocked()
    clock.jump(2 * TIMEOUT_S)
    node.answers.set()
    await wait_all_tasks_blocked()


async def test_a_greeting_on_its_way_when_a_late_loop_looks_is_in_time(
    mock_clock: MockClock,
) -> None:
    """Found: a loop that was blocked for all of `timeout` while it connected was told that the broker is lost."""
    async with trio.open_nursery() as nursery:
        node = Distant(nursery)
        channel = Channel(cast("Node", node), "broker", "/", timeout_s=TIMEOUT_S)

        async def opens() -> None:
            async with channel.open("publish"):
                pass

        for connects in (channel.wait_connected, partial(channel.retry_open, opens)):
            nursery.start_soon(connects)
            await blocked(mock_clock, node)
            assert channel.session
        nursery.cancel_scope.cancel()


class Silent(Distant):
    """One that says what it has stored several turns after its first word."""

    async def __anext__(self) -> bytes:
        return encode_answer(Answer(0, {
            "session": b"session", "publisher": bytes(16), "epoch": 1, "holes": [], "decided": 7, "floor": 0,
        }))  # fmt: skip


async def test_what_is_stored_may_be_said_turns_after_a_late_loop_looks(
    mock_clock: MockClock,
) -> None:
    """Found: a numbered publisher that began in a blocked loop said that the broker says nothing."""
    async with trio.open_nursery() as nursery:
        node = Silent(nursery)
        channel = Channel(cast("Node", node), "broker", "/", timeout_s=TIMEOUT_S)
        node.answers.set()
        await channel.wait_connected()
        publisher = NumberedPublisher(channel, "import", 1, 1000)
        nursery.start_soon(publisher.__aenter__)
        await blocked(mock_clock, node)
        assert publisher.known.end == 7
        nursery.cancel_scope.cancel()


async def test_who_has_no_broker_looks_out_for_it_nearly_all_the_time(
    autojump_clock: MockClock,
) -> None:
    """Found: after a while it did so for half of the time, and missed a broker that was up for a second."""
    async with trio.open_nursery() as nursery:
        node = Lonely(nursery)
        with pytest.raises(BrokerLost, match="no members"):
            await Channel(cast("Node", node), "broker", "/", timeout_s=60.0).wait_connected()
        nursery.cancel_scope.cancel()
    pauses_s = [later - sooner for sooner, later in pairwise(node.looked_s)][1::2]
    assert len(pauses_s) > 20
    assert max(pauses_s) == pytest.approx(RETRY_S)
