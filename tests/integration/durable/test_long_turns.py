"""However much there is to deliver, a turn of the pump ends, and every queue has its own.

On a memory disk, in virtual time.
"""

from __future__ import annotations

import pytest
import trio

from durable.broker import running_vhost
from durable.broker.running_vhost import RunningVhost
from durable.log.memory_disk import Volume
from durable.queues.consumers import Consumer
from durable.queues.queue import Delivery
from tests.integration.durable.test_checkpoint_files import Client
from tests.integration.durable.test_too_large import declare
from tests.power_cuts import CONFIG, run

QUEUES, MESSAGES, AT_ONCE = 5, 6, 4


class Session:
    """Of one consumer; what it got stands in `got`, by its queue."""

    def __init__(self, name: str, got: list[tuple[str, int]]) -> None:
        self._name, self._got = name, got

    def receive(self, deliveries: list[Delivery]) -> None:
        self._got += [(self._name, one.first) for one in deliveries]

    def cancel(self, reason: str) -> None: ...


NAMES = [f"queue {number}" for number in range(QUEUES)]


async def busy_queues(
    running: RunningVhost, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, int]]:
    """All of them are to be delivered in the next turns, and one that is empty before them; by queue and
    sequence what has been is told in the list."""
    got, client = list[tuple[str, int]](), Client()
    for name in ["empty", *NAMES]:
        await declare(running, name)
    for _ in range(MESSAGES):
        for name in NAMES:
            await client.publish(running, name, b"x")
    monkeypatch.setattr(running_vhost, "DELIVERIES_AT_ONCE", AT_ONCE)
    for name in ["empty", *NAMES]:
        queue = running.vhost.registry.queue(name)
        consumer = Consumer(name, prefetch=0, prefetch_bytes=0)
        queue.subscribe(consumer)
        running.attach_consumer(consumer, Session(name, got))
        running.wake(queue)
    return got


def test_a_turn_delivers_so_much_of_all_queues_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life(running: RunningVhost) -> None:
        got, turns = await busy_queues(running, monkeypatch), list[int]()
        while not turns or turns[-1]:
            before = len(got)
            running.pump_once()
            turns.append(len(got) - before)
        assert max(turns) <= AT_ONCE
        assert turns[0] == AT_ONCE - 1, "whoever has none is asked, too"
        assert len(got) == QUEUES * MESSAGES
        for name in NAMES:
            assert [first for whose, first in got if whose == name] == [*range(MESSAGES)]
        assert {name for name, _ in got[: QUEUES * AT_ONCE]} == set(NAMES), "before a second turn"

    run(Volume(), life, config=CONFIG)


def test_what_a_turn_leaves_the_next_ones_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for it again."""

    async def life(running: RunningVhost) -> None:
        got = await busy_queues(running, monkeypatch)
        for _ in range(10 * QUEUES * MESSAGES):
            await trio.lowlevel.checkpoint()
        assert len(got) == QUEUES * MESSAGES

    run(Volume(), life, config=CONFIG)
