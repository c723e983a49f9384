"""Who wants to consume alone, while another consumer of its own program is about to end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from durable.errors import UnknownQueue
from durable.log.commits import Commits
from durable.log.store import Store
from tests.brokers import client, numbered, payloads, serving, take
from tests.waiting import PATIENCE_S, until


async def test_an_exclusive_consumer_that_left_by_an_error_is_not_in_its_own_way(
    tmp_path: Path,
) -> None:
    """Found: QueueInUse about every second time, of the program's own consumer."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(20))
        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                async with shop.consume("jobs", exclusive=True) as deliveries:
                    await take(deliveries, 1)
                    raise ZeroDivisionError


async def test_who_waits_for_its_own_end_is_told_when_the_queue_goes_with_it(
    tmp_path: Path,
) -> None:
    """Found by reading: every other time it consumed a queue that nobody could publish to any more."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        left = broker.hosted("/").consumer_gone

        async def consume(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            task_status.started()
            with pytest.raises(UnknownQueue):
                async with shop.consume("jobs", exclusive=True):
                    pass

        for _ in range(20):  # Who is first in the turn in which it goes is left to chance.
            await shop.declare_queue("jobs", durability="memory", auto_delete=True)
            with trio.fail_after(PATIENCE_S):
                async with (
                    trio.open_nursery() as nursery,
                    shop.consume("jobs", exclusive=True),
                ):
                    await nursery.start(consume)
                    await until(lambda: left._lot.statistics().tasks_waiting)


async def test_a_consumer_that_is_gone_does_not_wait_for_a_disk_that_hangs_and_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: what it had settled was to be on the disk before anybody else was let in."""
    back = threading.Event()

    def hang(store: Store, *arguments: Any) -> None:
        back.wait(PATIENCE_S)
        carry_out(store, *arguments)

    carry_out = Store.carry_out
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.declare_queue("jobs")
        await shop.publish_many("", "jobs", numbered(2))
        monkeypatch.setattr(Store, "carry_out", hang)
        monkeypatch.setattr(Commits, "_is_quick", lambda *_: False)  # Each in the thread.
        try:
            with pytest.raises(ZeroDivisionError):
                async with shop.consume("jobs", exclusive=True, prefetch=1) as deliveries:
                    (first,) = await take(deliveries, 1)
                    await first.ack()
                    raise ZeroDivisionError
            async with shop.consume("jobs", exclusive=True) as deliveries:
                (second,) = await take(deliveries, 1)
                back.set()
                await second.ack()
        finally:
            back.set()
    assert payloads([first, second]) == numbered(2)
