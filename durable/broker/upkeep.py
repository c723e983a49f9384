"""What time does: messages and queues expire, streams drop what they need not keep, space is given back."""

from __future__ import annotations

import trio

from ..queues.queue import Queue
from .hosted import Hosted


async def keep_up(hosted: Hosted, idle_s: float) -> None:
    """Until cancelled."""
    while True:
        await trio.sleep(idle_s)
        now_us = hosted.clock.now_us()
        registry = hosted.vhost.registry
        changed = sum(queue.expire(now_us) for queue in registry.queues.values() if queue.expires)
        changed += sum(stream.retain(now_us) for stream in registry.streams.values())
        if changed:
            hosted.wake()
        for queue in [one for one in registry.queues.values() if _is_over(one, now_us)]:
            await hosted.delete_queue(queue, "nobody used it for its expires_s")


def _is_over(queue: Queue, now_us: int) -> bool:
    """Whether nobody has used it for as long as its definition allows."""
    limit_s = queue.definition.expires_s
    if limit_s is None:
        return False
    since_us = queue.idle_since_us()
    return since_us is not None and now_us - since_us > limit_s * 1e6
