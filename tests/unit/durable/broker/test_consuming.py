"""How long a consumer waits that wants to be alone."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.broker.consuming import FORMER_WAIT_S, FORMER_WAITS, _subscribe
from durable.errors import QueueInUse
from durable.queues.consumers import Consumer, Consumers
from durable.queues.queue import Queue
from mesh.waker import Bell


def consumer() -> Consumer:
    return Consumer("shop", prefetch=1, prefetch_bytes=0, exclusive=True)


@pytest.mark.parametrize("ends", [True, False])
async def test_who_wants_to_be_alone_waits_for_its_own_end_that_a_late_loop_has_yet_to_read(
    ends: bool, mock_clock: MockClock
) -> None:
    """Found by reading: a broker whose loop was late by a second refused it, with the end of the other one unread."""
    queue = cast("Queue", SimpleNamespace(consumers=Consumers(single_active=False)))
    queue.subscribe = partial(queue.consumers.add, "jobs")  # type: ignore[method-assign]
    running, there, own = cast("Any", SimpleNamespace(consumer_gone=Bell())), consumer(), consumer()
    queue.subscribe(there)
    refused: list[QueueInUse] = []

    async def subscribe() -> None:
        try:
            await _subscribe(running, lambda: queue, own)
        except QueueInUse as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscribe)
        await wait_all_tasks_blocked()
        mock_clock.jump(5)
        await wait_all_tasks_blocked()
        assert not refused
        if ends:
            queue.consumers.remove(there)
            running.consumer_gone.wake()
        mock_clock.autojump_threshold = 0
    assert [*queue.consumers] == [own if ends else there]
    assert len(refused) == (not ends)
    assert ends or trio.current_time() == pytest.approx(5 + (FORMER_WAITS - 1) * FORMER_WAIT_S)
