"""What a node says of itself: counters that stay as they were read, and lines for events, not messages."""

from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError, fields

import pytest

import mesh
from mesh.protocol.membership import Change
from mesh.statistics import NodeStatistics
from mesh.watching import CHANGES_MAX
from tests.nodes import linked, node, subscribed
from tests.waiting import until

COUNT = 100


def databases() -> mesh.Service:
    service = mesh.Service("databases")

    @service.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    @service.broadcast
    async def hear(request: mesh.Request) -> None:
        pass

    @service.tunnel
    async def mirror(tunnel: mesh.Tunnel) -> None:
        async for part in tunnel:
            await tunnel.send(part)

    return service


async def use_every_pattern(shop: mesh.Node, db: mesh.Node) -> NodeStatistics:
    """COUNT messages of each kind; what the member has counted while all is open."""
    async with db.subscribe("t") as subscription, shop.open_tunnel("databases") as tunnel:
        await subscribed(shop, "t")
        for _ in range(COUNT):
            await shop.publish("t", b"x")
            await shop.request("databases", b"x")
            await shop.broadcast("databases", b"x")
            await tunnel.send(b"x")
            await anext(subscription)
            await anext(tunnel)
        await until(lambda: db.statistics().broadcasts.received == COUNT)
        return db.statistics()


async def test_events_are_logged_once_and_messages_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with node(databases()) as db:
        async with node("shop", db) as shop:
            await linked(shop, db)
            before = len(caplog.records)
            await use_every_pattern(shop, db)
            assert len(caplog.records) == before
        await until(lambda: not db.members("shop"))
    said = [one.getMessage() for one in caplog.records]
    for event, count in ((": joined", 2), (": left", 1)):  # Each saw the other come; one saw it go.
        assert len([line for line in said if event in line]) == count, said


async def test_counters_are_frozen_and_of_each_link_subscription_and_tunnel() -> None:
    async with node(databases()) as db, node("shop", db) as shop:
        await linked(shop, db)
        counted = await use_every_pattern(shop, db)
        (link,), (subscription,), (tunnel,) = counted.links, counted.subscriptions, counted.tunnels
        assert link.frames_received >= COUNT
        assert subscription.delivered == COUNT
        assert (tunnel.received_parts, tunnel.sent_parts) == (COUNT, COUNT)
        assert counted.services[0].served >= COUNT
        assert db.statistics() != counted, "the subscription and the tunnel have ended since"
        for one in (counted, link, subscription, tunnel, counted.services[0], counted.publishing):
            for field in fields(one):
                with pytest.raises(FrozenInstanceError):
                    setattr(one, field.name, 0)


async def test_a_watch_begins_with_those_who_are_there() -> None:
    async with node("databases") as one, node("caches") as other, node("shop", one, other) as shop:
        await linked(shop, one, other)
        watch = shop.watch("databases")
        change = await anext(watch)
        assert (change.kind, change.member.node) == ("joined", one.id)
        everybody = shop.watch()
        joined = [await anext(everybody) for _ in range(2)]
        assert {(change.kind, change.member.node) for change in joined} == {
            ("joined", one.id), ("joined", other.id),
        }  # fmt: skip


async def test_every_change_of_a_member_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with node("databases") as db, node("shop", db) as shop:
        await linked(shop, db)
        caplog.set_level(logging.INFO)
        (member,) = shop.members("databases")
        for kind in ("suspect", "stalled", "alive", "dead"):
            caplog.clear()
            shop._driver.member_changed(Change(kind, member, "why"))
            assert [one.getMessage() for one in caplog.records] == [f"{member!r}: {kind}, why"]


async def test_a_watch_that_nobody_reads_drops_the_oldest_and_counts() -> None:
    async with node("databases") as db, node("shop", db) as shop:
        await linked(shop, db)
        watch = shop.watch("databases")
        (member,) = shop.members("databases")
        for number in range(CHANGES_MAX):
            watch.changed(Change("alive", member, f"{number}"))
        watch.changed(Change("dead", member))
        assert watch.dropped == 2, "that it joined, and the first change"
        assert (await anext(watch)).reason == "1"
