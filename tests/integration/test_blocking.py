"""Subscriptions that block, and the publishers that wait for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import mesh
import mesh.message
from tests.nodes import linked, node, subscribed
from tests.waiting import until


class Endless:
    """Publishes its number to a topic, which may be another one each time, as often as it may."""

    def __init__(self, node: mesh.Node, topic: str, size_bytes: int = 500) -> None:
        self._node, self._topic, self._size_bytes = node, topic, size_bytes
        self.count = 0

    async def run(self) -> None:
        while True:
            payload = self.count.to_bytes(self._size_bytes)
            await self._node.publish(self._topic.format(self.count), payload)
            self.count += 1


@asynccontextmanager
async def blocked(
    pattern: str, topic: str
) -> AsyncIterator[tuple[mesh.Node, mesh.Node, mesh.Subscription, Endless]]:
    """Who publishes to `topic` without end, who subscribes to `pattern` and has read nothing, and both their sides."""
    async with node("pub") as pub, node("sub", pub) as sub:
        await linked(pub, sub)
        async with (
            sub.subscribe(pattern, when_full="block", limit_bytes=2000) as messages,
            trio.open_nursery() as nursery,
        ):
            await subscribed(pub, topic.format(1))
            endless = Endless(pub, topic)
            nursery.start_soon(endless.run)
            yield pub, sub, messages, endless
            nursery.cancel_scope.cancel()


async def test_a_subscription_takes_as_much_of_its_own_node_as_of_another() -> None:
    """Found: of its own node a frame's worth, 2,424 messages where another had to wait after 18."""
    taken: list[int] = []
    async with node("pub") as pub, node("sub", pub) as sub:
        await linked(pub, sub)
        for subscriber in (pub, sub):
            async with (
                subscriber.subscribe("t", when_full="block", limit_bytes=2000),
                trio.open_nursery() as nursery,
            ):
                await subscribed(pub, "t")
                endless = Endless(pub, "t", 100)
                nursery.start_soon(endless.run)
                await until(lambda: "t" in pub._streams and pub._streams["t"].blocked)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            taken.append(endless.count)
            await until(lambda: not pub._core.patterns.interest.match("t"))
    assert 10 < max(taken) <= 2000 // 100
    assert abs(taken[0] - taken[1]) < 5


async def test_a_reader_that_stands_still_keeps_its_limit_however_often_its_link_is_lost() -> None:
    """Found: `limit_bytes` more of the same publisher with every link that came anew."""
    async with blocked("t", "t") as (pub, sub, messages, _):
        (inbox,) = sub._core.patterns.subscriptions.inboxes.values()
        for _ in range(4):
            await until(lambda: bool(pub._driver.room_bells))
            assert inbox.statistics().waiting_bytes <= 2000
            (before,) = pub._core.patterns.interest.match("t")
            (link,) = sub._core.peering.links.values()
            sub._core.peering.fail(link, "for the test", now_s=trio.current_time())
            await until(lambda: pub._core.patterns.interest.match("t") not in ([], [before]))
        numbers = [int.from_bytes((await anext(messages)).payload) for _ in range(20)]
        assert numbers == sorted(set(numbers)), "and the publisher goes on"


async def test_who_publishes_to_ever_new_topics_waits_as_well() -> None:
    """Found: one message of each was taken, however many."""
    async with blocked("t.*", "t.{}") as (pub, _, messages, endless):
        await until(lambda: bool(pub._driver.room_bells))
        assert endless.count <= 2000 // 500 + 1
        with pytest.raises(trio.WouldBlock):
            pub.publish_nowait("t.new", bytes(500))
        for number in range(100):
            message = await anext(messages)
            assert (message.topic, message.lost) == (f"t.{number}", 0)


class Turns(trio.abc.Instrument):
    """Counts the turns of the tasks of one function."""

    def __init__(self, function: str) -> None:
        self._function, self.count = function, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith(self._function)


async def test_of_many_publishers_that_wait_those_are_woken_that_may_go_on() -> None:
    """Found: with each batch read all were, and 3,000 took 3 ms of CPU."""
    async with (
        node("solo") as solo,
        solo.subscribe(">", when_full="block", limit_bytes=1000) as messages,
        trio.open_nursery() as nursery,
    ):

        async def publish_to(topic: str) -> None:
            while True:
                await solo.publish(topic, bytes(900))

        for n in range(50):
            nursery.start_soon(publish_to, f"t{n}")
        await trio.testing.wait_all_tasks_blocked()
        turns = Turns("publish_to")
        trio.lowlevel.add_instrument(turns)
        topics = set()
        for _ in range(20):
            topics.add((await messages.take()).topic)
            await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(turns)
        assert len(topics) >= 19, "they take turns; who was first stands in the queue again"
        assert 20 <= turns.count <= 20 * 5
        nursery.cancel_scope.cancel()


async def test_a_list_that_is_changed_while_its_publisher_waits_is_published_as_it_was() -> None:
    """Found: what was put into it had not been checked, and could end the whole node."""
    async with (
        node("shop") as shop, shop.subscribe("t", when_full="block", limit_bytes=2000) as messages,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        given: list[Any] = [b"%050d" % number for number in range(100)]
        was = list(given)
        nursery.start_soon(shop.publish_many, "t", given)
        await until(lambda: bool(shop._driver.room_bells))
        given[90] = "text"
        del given[95:]
        with trio.fail_after(5):
            assert [(await anext(messages)).payload for _ in was] == was


@pytest.mark.parametrize("packed", ["text", None, {"a": 1}, bytearray(b"\x80")])
async def test_packed_headers_that_are_no_bytes_are_refused(packed: object) -> None:
    """Found: they were taken, and the node crashed when the batch was to leave."""
    async with node("shop") as shop, shop.subscribe("t") as messages:
        with pytest.raises(TypeError, match="headers: want bytes"):
            await shop.publish_many("t", [b"a"], headers=[packed])  # type: ignore[list-item]
        await shop.publish_many("t", [b"b"], headers=[mesh.message.encode_headers({"n": 1}, 100)])
        with trio.fail_after(5):
            message = await anext(messages)
        assert (message.payload, message.headers, message.lost) == (b"b", {"n": 1}, 0)
