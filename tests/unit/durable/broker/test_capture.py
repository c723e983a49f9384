"""Which patterns are subscribed to, as streams come and go."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from durable.broker.capture import Capture
from mesh.errors import LimitReached, NodeClosed
from mesh.waker import Bell, Waker


class Quiet:
    """A subscription to which nothing comes."""

    def __init__(self, node: Narrow, pattern: str) -> None:
        self._node, self._pattern = node, pattern
        self.waits = 0
        """What can still be taken when it is closed, never to be stored."""
        self._closed = Bell()

    def share(self, _sharing: object, after: Sequence[Quiet]) -> None:
        self.after = [one._pattern for one in after]

    async def __aenter__(self) -> None:
        self._node.enter(self._pattern, self)

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._node.there.pop(self._pattern, None)
        self._closed.wake()

    async def take(self) -> Any:
        while self._pattern in self._node.there:
            await self._closed.wait()
        if self.waits:
            await trio.sleep_forever()
        raise NodeClosed("closed")


class Narrow:
    """A node that takes so many subscriptions at a time."""

    def __init__(self, subscriptions_max: int) -> None:
        self.config = SimpleNamespace(subscriptions_max=subscriptions_max)
        self.there = dict[str, Quiet]()

    def subscribe(self, pattern: str, **_: object) -> Quiet:
        return Quiet(self, pattern)

    def enter(self, pattern: str, one: Quiet) -> None:
        limit = self.config.subscriptions_max
        if len(self.there) == limit:
            raise LimitReached("subscriptions_max", limit)
        self.there[pattern] = one


def running_with(registry: Any) -> Any:
    return SimpleNamespace(
        vhost=SimpleNamespace(registry=registry),
        change_writer=SimpleNamespace(streams_changed=Waker()),
    )


async def test_a_pattern_that_takes_the_place_of_another_finds_it_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found by reading: in about every second run the one that went still counted against the limit."""
    caplog.set_level(logging.ERROR)
    registry = SimpleNamespace(patterns={"t0"})
    running = running_with(registry)
    node: Any = Narrow(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(running, node, 1).run)
        for number in range(1, 30):
            await wait_all_tasks_blocked()
            registry.patterns = {f"t{number}"}
            running.change_writer.streams_changed.wake()
        await wait_all_tasks_blocked()
        assert node.there.keys() == {"t29"}
        nursery.cancel_scope.cancel()
    assert not caplog.text


async def test_a_pattern_for_which_there_was_no_room_is_captured_when_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: who deleted streams, as they were told to, waited for the next restart of the broker."""
    registry = SimpleNamespace(patterns=["t0", "t1", "t2", "t3"])
    running = running_with(registry)
    node: Any = Narrow(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(running, node, 1).run)
        for patterns in (["t1", "t2", "t3"], ["t3"]):
            await wait_all_tasks_blocked()
            assert node.there.keys() == {*registry.patterns[:2]}
            registry.patterns = patterns
            running.change_writer.streams_changed.wake()
        await wait_all_tasks_blocked()
        assert node.there.keys() == {"t3"}
        nursery.cancel_scope.cancel()
    assert [caplog.text.count(f"pattern {one} is not") for one in ("t0", "t2", "t3")] == [0, 1, 1]


async def test_one_that_leaves_counts_until_it_has_ended() -> None:
    """What waits in it is as much as what waits in another."""
    registry = SimpleNamespace(patterns=["t0", "t1"])
    running = running_with(registry)
    node: Any = Narrow(3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(running, node, 1).run)
        await wait_all_tasks_blocked()
        node.there["t0"].waits = 1
        for patterns, there in (
            (["t1", "t2"], ["t1", "t2"]),
            (["t1", "t2", "t0"], ["t1", "t2"]),
        ):
            registry.patterns = patterns
            running.change_writer.streams_changed.wake()
            await wait_all_tasks_blocked()
            assert list(node.there) == there
        assert node.there["t2"].after == ["t0"]
        nursery.cancel_scope.cancel()


async def test_a_new_one_goes_on_where_those_ended_that_streams_may_have_got_something_from() -> (
    None
):
    """Also where one has ended right before: a stream that is declared by then may have got the last of it."""
    each_time = [["t0"], ["t1"], ["t1", "t2"], ["t1", "t2", "t3"]]

    class Registry:
        @property
        def patterns(self) -> list[str]:
            return each_time.pop(0)

    running = running_with(Registry())
    node: Any = Narrow(9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Capture(running, node, 1).run)
        for left in (3, 1):  # The one that ends wakes it once more.
            await wait_all_tasks_blocked()
            assert len(each_time) == left
            running.change_writer.streams_changed.wake()
        await wait_all_tasks_blocked()
        after = {pattern: one.after for pattern, one in node.there.items()}
        assert after == {"t1": ["t0"], "t2": ["t0"], "t3": []}
        nursery.cancel_scope.cancel()
