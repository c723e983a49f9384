"""Streams that share topics: each has every message once, in order, whichever of them goes, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
import mesh
from durable.broker.capture import Capture
from durable.client.delivery import Delivery
from mesh.protocol.inbox import Inbox
from mesh.waker import Bell
from tests.brokers import SMALL, client, node_of, numbered, payloads, serving, take, until_told
from tests.nodes import node, subscribed
from tests.waiting import PATIENCE_S, until


class Held:
    """Nothing that was captured is stored before `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = trio.Event()
        store = Capture._store

        async def held(capture: Capture, *args: Any) -> None:
            await self.go.wait()
            await store(capture, *args)

        monkeypatch.setattr(Capture, "_store", held)


class Sender:
    """Numbers on `t.a`, a batch each."""

    def __init__(self, sensors: mesh.Node) -> None:
        self._sensors, self.next, self.done = sensors, 0, False
        self._end, self._more = inf, Bell()

    async def send(self, count: int = 1) -> None:
        for _ in range(count):
            await self._sensors.publish("t.a", b"%d" % self.next)
            self.next += 1
            await trio.lowlevel.checkpoint()

    async def sent(self, count: int) -> None:
        """By whoever sends; wait for it."""
        end = self.next + count
        await until(lambda: self.next >= end)

    async def go_on(self) -> None:
        while not self.done:
            if self.next < self._end:
                await self.send()
            else:
                await self._more.wait()

    def more(self, count: int) -> None:
        """Go on for so many, and then wait."""
        self._end = self.next + count
        self._more.wake()


@asynccontextmanager
async def sending(
    path: Path, **settings: Any
) -> AsyncIterator[tuple[durable.Broker, durable.Connection, Sender]]:
    async with (
        serving(path, config=replace(SMALL, **settings)) as broker,
        client(broker) as shop,
        node("sensors", node_of(broker)) as sensors,
    ):
        await shop.declare_stream("goes", patterns=["t.>"])
        await subscribed(sensors, "t.a", 1)
        await shop.declare_stream("goes too", patterns=["*.a"])
        await subscribed(sensors, "t.a", 2)
        await shop.declare_stream("stays", patterns=["t.*"])
        await subscribed(sensors, "t.a", 3)
        yield broker, shop, Sender(sensors)


def came(inbox: Inbox) -> int:
    """Messages, whether they were taken, wait, or were dropped."""
    waiting = sum(one.end - one.first for one in inbox._entries)
    return inbox._delivered + inbox._dropped + waiting


async def grown(shop: durable.Connection, stream: str) -> None:
    await until_told(shop, lambda told: told["streams"][stream]["end"] > 20)


async def stored(shop: durable.Connection, stream: str, end: int) -> list[Delivery]:
    async with shop.read(stream, start="first") as records:
        return await take(records, end)


async def stored_until(shop: durable.Connection, stream: str, number: int) -> list[Delivery]:
    """All up to the one with this number."""
    found: list[Delivery] = []
    with trio.fail_after(PATIENCE_S):
        async with shop.read(stream, start="first") as records:
            async for one in records:
                found.append(one)
                if int(one.payload) == number:
                    break
    return found


async def test_a_stream_that_goes_takes_nothing_of_another_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: what the one subscribed first still held was lost, and the other had let it pass."""
    async with sending(tmp_path) as (broker, shop, sender), trio.open_nursery() as nursery:
        held = Held(monkeypatch)
        first, *_ = node_of(broker)._core.patterns.subscriptions.inboxes.values()
        await sender.send(200)
        await until(lambda: came(first) == 200)
        nursery.start_soon(sender.go_on)
        for name, left in (("goes", 2), ("goes too", 1)):
            await shop.delete_stream(name)
            await subscribed(sender._sensors, "t.a", left)
            await sender.sent(200)
        held.go.set()
        await sender.sent(200)
        sender.done = True
        await until(lambda: not nursery.child_tasks)
        found = await stored_until(shop, "stays", sender.next - 1)
        assert payloads(found) == numbered(sender.next)
        assert not broker.hosted("/").vhost.registry.gaps


async def test_streams_that_come_and_go_take_nothing_from_each_other(tmp_path: Path) -> None:
    """Of each, whatever it had first, all that came until it was looked at."""
    patterns = ["*.a", "t.a", "*.*", "*.>", ">", "t.>", "t.*"]
    async with sending(tmp_path) as (_, shop, sender), trio.open_nursery() as nursery:
        nursery.start_soon(sender.go_on)
        there = ["goes", "goes too", "stays"]
        for number in range(21):
            there.append(f"s{number}")
            pattern = patterns[number % len(patterns)]
            sender.more(400)
            await shop.declare_stream(there[-1], patterns=[pattern])
            leaves = there.pop(0)
            await grown(shop, leaves)
            end = (await shop.statistics())["streams"][leaves]["end"]
            found = await stored(shop, leaves, end)
            first = int(found[0].payload)
            assert payloads(found) == numbered(len(found), first)
            assert {one.lost for one in found} == {0}
            sender.more(400)
            await shop.delete_stream(leaves)
        sender.done = True
        sender.more(0)


async def test_what_the_one_that_goes_had_no_room_for_is_a_gap_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sending(tmp_path, capture_bytes=4000) as (broker, shop, sender):
        held = Held(monkeypatch)
        first, _, second = node_of(broker)._core.patterns.subscriptions.inboxes.values()
        await sender.send(200)
        await until(lambda: came(first) == 200)
        assert first._dropped > 100
        await shop.delete_stream("goes too")
        await shop.delete_stream("goes")
        await subscribed(sender._sensors, "t.a", 1)
        await sender.send(200)
        await until(lambda: came(second) >= 200)
        held.go.set()
        await until(lambda: not second)
        await sender.send()
        found = await stored_until(shop, "stays", sender.next - 1)
        expected = 0
        for one in found:
            expected += one.lost
            assert int(one.payload) == expected, "each is there once, or told once to be missing"
            expected += 1
        assert expected == sender.next
        assert sum(one.lost for one in found) > 200


async def test_a_broker_ends_though_nothing_of_one_that_goes_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(PATIENCE_S):
        async with sending(tmp_path) as (broker, shop, sender):
            Held(monkeypatch)
            first, _, last = node_of(broker)._core.patterns.subscriptions.inboxes.values()
            await sender.send(10)
            await until(lambda: came(first) == 10)
            await shop.delete_stream("goes")
            await shop.delete_stream("goes too")
            await subscribed(sender._sensors, "t.a", 1)
            await sender.send(10)
            await until(lambda: came(last) == 10)
