"""Periodic work: messages and queues expire, and streams drop what exceeds their limits."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio

from ..errors import StoreError
from ..queues.queue import Queue
from .running_vhost import RunningVhost

RATES_S = 5.0
"""Seconds of one interval of rates: long enough to be steady, short enough to show a change."""


async def run_upkeep(running: RunningVhost, idle_s: float) -> None:
    """Expire messages and queues and apply the limits of streams, every `idle_s`, until cancelled."""
    unused: dict[Queue, None] = {}
    while True:
        await trio.sleep(idle_s)
        now_us = running.clock.now_us()
        registry = running.vhost.registry
        changed = sum(
            queue.expire(now_us) for queue in registry.queues.values() if queue.may_expire
        )
        if changed:
            running.wake()
        for stream in list(registry.streams.values()):
            while not stream.lane.retired and stream.retain(now_us):
                running.wake()
                await trio.lowlevel.checkpoint()
        # A queue has to be unused at two looks in a row: if our loop was blocked, the call or message that
        # uses it may have arrived and not been read yet.
        before = unused
        unused = {one: None for one in registry.queues.values() if not _is_used(running, one)}
        for queue in unused:
            if queue in before and queue not in running.auto_deletions:
                stays = partial(_is_used, running, queue)
                running.auto_deletions.add(queue, "it was not used for its expires_s", stays=stays)
                running.auto_deletions.due.wake()


async def run_auto_deletions(running: RunningVhost, idle_s: float) -> None:
    """Delete the queues that are to be deleted as soon as they can be, until cancelled."""
    while True:
        with trio.move_on_after(idle_s):  # Deletions that the log had no room for are tried again.
            await running.auto_deletions.due.wait()
            # Dead letters have left the queue when their copies are durable.
            with suppress(StoreError):
                await running.log.wait_durable(running.log.end - 1)
        await running.auto_deletions.delete_all()


async def sample_rates(running: RunningVhost) -> None:
    """Compute the rates of queues and streams, until cancelled."""
    registry, clock = running.vhost.registry, running.clock
    then_us = clock.now_us()
    while True:
        await trio.sleep(RATES_S)
        elapsed_s, then_us = (clock.now_us() - then_us) / 1e6, clock.now_us()
        for members in (registry.queues, registry.streams):
            for member in members.values():
                member.counts.sample(elapsed_s)


def _is_used(running: RunningVhost, queue: Queue) -> bool:
    """Whether the queue has been used within its `expires_s`."""
    limit_s = queue.definition.expires_s
    if limit_s is None:
        return True
    since_us = queue.idle_since_us()
    return since_us is None or running.clock.now_us() - since_us <= limit_s * 1e6
