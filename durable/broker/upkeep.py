"""What time does: messages and queues expire, streams drop what they need not keep."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio

from ..errors import StoreError
from ..queues.queue import Queue
from .hosted import Hosted

RATES_S = 5.0
"""Of one interval of rates: long enough to be steady, short enough to see a change."""


async def keep_up(hosted: Hosted, idle_s: float) -> None:
    """Until cancelled."""
    unused: dict[Queue, None] = {}
    while True:
        await trio.sleep(idle_s)
        now_us = hosted.clock.now_us()
        registry = hosted.vhost.registry
        changed = sum(queue.expire(now_us) for queue in registry.queues.values() if queue.expires)
        if changed:
            hosted.wake()
        for stream in list(registry.streams.values()):
            while not stream.lane.retired and stream.retain(now_us):
                hosted.wake()
                await trio.lowlevel.checkpoint()
        # Unused the time before, too: where our loop was late, what uses one is there and has yet to be read.
        before = unused
        unused = {one: None for one in registry.queues.values() if not _is_used(hosted, one)}
        for queue in unused:
            if queue in before and queue not in hosted.endings:
                stays = partial(_is_used, hosted, queue)
                hosted.endings.add(queue, "nobody used it for its expires_s", stays=stays)
                hosted.endings.due.wake()


async def end_queues(hosted: Hosted, idle_s: float) -> None:
    """Those that are to go, as soon as they can, until cancelled."""
    while True:
        with trio.move_on_after(idle_s):  # What the log had no room for is tried again.
            await hosted.endings.due.wait()
            with suppress(StoreError):  # The dead have moved on when their copies are durable.
                await hosted.log.durable(hosted.log.end - 1)
        await hosted.endings.end_all()


async def sample_rates(hosted: Hosted) -> None:
    """Until cancelled."""
    registry, clock = hosted.vhost.registry, hosted.clock
    then_us = clock.now_us()
    while True:
        await trio.sleep(RATES_S)
        elapsed_s, then_us = (clock.now_us() - then_us) / 1e6, clock.now_us()
        for members in (registry.queues, registry.streams):
            for member in members.values():
                member.counts.sample(elapsed_s)


def _is_used(hosted: Hosted, queue: Queue) -> bool:
    """Whether somebody has used it in the time that its definition allows."""
    limit_s = queue.definition.expires_s
    if limit_s is None:
        return True
    since_us = queue.idle_since_us()
    return since_us is None or hosted.clock.now_us() - since_us <= limit_s * 1e6
