"""Cancelled before any step of any task, whatever a client does leaves nothing behind, and can be done again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from durable.client.connection import Connection
from tests.brokers import client, drain, node_of, numbered, serving, take
from tests.waiting import PATIENCE_S, until

STEPS_MAX = 1000
"""Far more than any of these takes."""
COUNT = 1000
"""Messages: enough to read on with each attempt."""


class CancelBefore(trio.abc.Instrument):
    """Cancels `scope` before the step with this number, counted from 1, of any tasks."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope, self.steps_left = scope, number

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            self._scope.cancel()


async def consume(shop: Connection) -> None:
    async with shop.consume("jobs", prefetch=10) as deliveries:
        for one in await take(deliveries, 5):
            await one.release()
        await deliveries.synced()


async def read(shop: Connection) -> None:
    async with shop.read("audit", start="first", cursor="billing") as records:
        await take(records, 3)
        await records.store()


async def publish(shop: Connection) -> None:
    await shop.publish("", "jobs", b"one")


async def publish_through_a_small_window(shop: Connection) -> None:
    async with shop.publisher("orders", window_bytes=100) as publisher:
        await publisher.send_many("", "jobs", [bytes(50)] * 5)


async def publish_numbered(shop: Connection) -> None:
    async with shop.numbered_publisher("rows", window_bytes=100) as publisher:
        await publisher.send(publisher.known.end, "", "jobs", [bytes(50)] * 5)


async def declare(shop: Connection) -> None:
    await shop.declare_queue("more")
    await shop.delete_queue("more")


@pytest.mark.parametrize(
    "act",
    [consume, read, publish, publish_through_a_small_window, publish_numbered, declare],
)
async def test_cancelled_before_every_step(
    tmp_path: Path, act: Callable[[Connection], Awaitable[None]]
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.declare_stream("audit")
        for name in ("jobs", "audit"):
            await shop.publish_many("", name, numbered(COUNT))
        tunnels = node_of(broker)._core.patterns.tunnels

        async def nothing_is_left() -> bool:
            jobs = (await shop.statistics())["queues"]["jobs"]
            of_connection = 2  # Its calls, and what it publishes.
            return jobs["unacked"] == jobs["consumers"] == 0 and len(tunnels._ends) <= of_connection

        for number in range(1, STEPS_MAX):
            with trio.CancelScope() as scope:
                cancel = CancelBefore(scope, number)
                trio.lowlevel.add_instrument(cancel)
                with trio.fail_after(PATIENCE_S):
                    await act(shop)
                cancel.steps_left = 0
            trio.lowlevel.remove_instrument(cancel)
            await until(nothing_is_left)
            if not scope.cancel_called:
                break
        assert 1 < number < STEPS_MAX - 1
        assert (await drain(shop, "jobs"))[:COUNT] == numbered(COUNT)


async def test_cancelled_before_every_step_of_its_beginning_a_consumer_returns_nothing(
    tmp_path: Path,
) -> None:
    """Found: what had been sent to one that was cancelled as it opened counted as returned, though nobody was
    handed any of it. So each poll with a timeout that met a broker's restart was one less up to `delivery_limit`."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(COUNT))

        async def none_consumes() -> bool:
            return not (await shop.statistics())["queues"]["jobs"]["consumers"]

        for number in range(1, STEPS_MAX):
            with trio.CancelScope() as scope:
                cancel = CancelBefore(scope, number)
                trio.lowlevel.add_instrument(cancel)
                with trio.fail_after(PATIENCE_S):
                    async with shop.consume("jobs", prefetch=10):
                        pass
                cancel.steps_left = 0
            trio.lowlevel.remove_instrument(cancel)
            await until(none_consumes)
            if not scope.cancel_called:
                break
        assert 1 < number < STEPS_MAX - 1
        async with shop.consume("jobs", prefetch=0) as deliveries:
            found = await take(deliveries, COUNT)
        assert [one.redelivered for one in found] == [0] * COUNT
