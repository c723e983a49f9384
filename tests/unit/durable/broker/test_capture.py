"""Which patterns are subscribed to, as streams come and go."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from durable.broker.capture import Capture
from mesh.errors import LimitReached
from mesh.waker import Waker


class Narrow:
    """A node that takes so many subscriptions at a time."""

    def __init__(self, subscriptions_max: int) -> None:
        self.subscriptions_max, self.there = subscriptions_max, set[str]()

    @asynccontextmanager
    async def subscribe(self, pattern: str, **_: object) -> AsyncIterator[Any]:
        if len(self.there) == self.subscriptions_max:
            raise LimitReached("subscriptions_max", self.subscriptions_max)
        self.there.add(pattern)
        try:
            yield SimpleNamespace(take=trio.sleep_forever)
        finally:
            self.there.remove(pattern)


async def test_a_pattern_that_takes_the_place_of_another_finds_it_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found by reading: in about every second run the one that went still counted against the limit."""
    caplog.set_level(logging.ERROR)
    registry = SimpleNamespace(patterns={"t0"})
    hosted: Any = SimpleNamespace(vhost=SimpleNamespace(registry=registry), streams_changed=Waker())
    node: Any = Narrow(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(hosted, node, 1).run)
        for number in range(1, 30):
            await wait_all_tasks_blocked()
            registry.patterns = {f"t{number}"}
            hosted.streams_changed.wake()
        await wait_all_tasks_blocked()
        assert node.there == {"t29"}
        nursery.cancel_scope.cancel()
    assert not caplog.text


async def test_a_pattern_for_which_there_was_no_room_is_captured_when_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: who deleted streams, as they were told to, waited for the next restart of the broker."""
    registry = SimpleNamespace(patterns=["t0", "t1", "t2", "t3"])
    hosted: Any = SimpleNamespace(vhost=SimpleNamespace(registry=registry), streams_changed=Waker())
    node: Any = Narrow(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(hosted, node, 1).run)
        for patterns in (["t1", "t2", "t3"], ["t3"]):
            await wait_all_tasks_blocked()
            assert node.there == {*registry.patterns[:2]}
            registry.patterns = patterns
            hosted.streams_changed.wake()
        await wait_all_tasks_blocked()
        assert node.there == {"t3"}
        nursery.cancel_scope.cancel()
    assert [caplog.text.count(f"pattern {one} is not") for one in ("t0", "t2", "t3")] == [0, 1, 1]


async def test_what_is_not_subscribed_to_takes_nothing_from_others() -> None:
    """Found by reading: `t.>` was the first to match, and had been refused."""

    @asynccontextmanager
    async def subscribe(pattern: str, **_: object) -> AsyncIterator[Any]:
        if pattern == "t.>":
            raise LimitReached("subscriptions_max", 1)
        yield SimpleNamespace(take=trio.sleep_forever)

    registry = SimpleNamespace(patterns={"t.>"})
    hosted: Any = SimpleNamespace(vhost=SimpleNamespace(registry=registry), streams_changed=Waker())
    node: Any = SimpleNamespace(subscribe=subscribe)
    capture = Capture(hosted, node, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(capture.run)
        for pattern in ("t.*", "t.a"):
            await wait_all_tasks_blocked()
            registry.patterns = registry.patterns | {pattern}
            hosted.streams_changed.wake()
        await wait_all_tasks_blocked()
        assert capture._first_to_match("t.a") == "t.*", "the first that was subscribed"
        nursery.cancel_scope.cancel()
