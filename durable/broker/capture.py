"""Live topics into streams: publishers know nothing of it.

One subscription per pattern of any stream. A message that several of them match is stored once, by
the one that was subscribed first: it has the message for certain, whatever patterns come later. What
was lost on the way, or dropped here because the disk was slower than the publishers for too long, or
is more than a segment takes, is recorded as a gap. Order is kept per pattern, so per topic, not
between topics of several patterns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

import trio

from mesh.errors import InvalidName, LimitReached, TooLarge
from mesh.names import read_pattern
from mesh.node import Node
from mesh.protocol.batch import Batch
from mesh.protocol.inbox import Delivery
from mesh.protocol.interest import Interest

from ..errors import StoreFailed, StoreFull
from ..log.bodies import Missed
from ..vhost.routes import cut
from ..vhost.stream import Stream
from .hosted import Hosted

logger = logging.getLogger("durable")
FULL_PAUSE_S = 0.1


@dataclass(slots=True, eq=False)
class _Subscribed:
    """The task of one pattern."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    turn: float = inf
    """Lower than of those that were subscribed later; inf: it is not."""


class Capture:
    """Of one vhost."""

    def __init__(self, hosted: Hosted, node: Node, inbox_bytes: int) -> None:
        self._hosted, self._node, self._inbox_bytes = hosted, node, inbox_bytes
        self._running: dict[str, _Subscribed] = {}
        self._turns = count()
        self._interest: Interest[str] = Interest()
        self._refused: set[str] = set()
        """Patterns that the node takes no subscription for, each said once."""

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                wanted = self._hosted.vhost.registry.patterns
                self._refused.intersection_update(wanted)
                over = [
                    one
                    for one, subscribed in self._running.items()
                    if one not in wanted or subscribed.ended.is_set()  # There may be room now.
                ]
                gone = [(one, self._running.pop(one)) for one in over]
                for pattern, subscribed in gone:
                    subscribed.scope.cancel()
                    self._interest.remove(read_pattern(pattern), pattern)
                for _, subscribed in gone:  # They count until then, and there is a limit.
                    await subscribed.ended.wait()
                for pattern in [one for one in wanted if one not in self._running]:
                    self._interest.add(read_pattern(pattern), pattern)
                    subscribed = self._running[pattern] = _Subscribed()
                    await nursery.start(self._subscribe, pattern, subscribed)
                await self._hosted.streams_changed.wait()

    async def _subscribe(
        self, pattern: str, subscribed: _Subscribed,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        with subscribed.scope:
            async with AsyncExitStack() as stack:
                stack.callback(subscribed.ended.set)
                wanted = self._node.subscribe(
                    pattern, when_full="drop_newest", limit_bytes=self._inbox_bytes
                )
                try:
                    subscription = await stack.enter_async_context(wanted)
                except (InvalidName, LimitReached) as error:
                    # It is declared, and must not keep this broker from starting.
                    if pattern not in self._refused:
                        logger.error("pattern %s is not captured: %s", pattern, error)
                    self._refused.add(pattern)
                    return task_status.started()
                self._refused.discard(pattern)
                subscribed.turn = next(self._turns)
                task_status.started()
                while True:
                    delivery = await subscription.take()
                    if self._first_to_match(delivery.topic) == pattern:
                        with suppress(StoreFailed):  # Which has been said; the rest goes on.
                            await self._store(delivery)

    def _first_to_match(self, topic: str) -> str | None:
        """None: the streams that wanted it went while it was on its way."""
        patterns = self._interest.match(topic)
        return min(patterns, key=lambda one: self._running[one].turn, default=None)

    async def _store(self, delivery: Delivery) -> None:
        """In pieces where it is more than a segment takes."""
        left, lost = [_batch(delivery)], delivery.lost
        while left:
            batch = left.pop()
            try:
                await self._with_room(partial(self._hosted.vhost.capture, batch, lost))
            except TooLarge as error:
                if lost:  # What was lost may be what makes it too large, for many streams.
                    await self._miss(batch, batch.base_sequence - lost, lost)
                    left.append(batch)
                elif batch.count > 1:
                    front, back = batch.halves()
                    left += [back, front]
                else:
                    logger.warning("a message of topic %s is not captured: %s", batch.topic, error)
                    await self._miss(batch, batch.base_sequence, 1)
            lost = 0

    async def _miss(self, batch: Batch, first: int, count: int) -> None:
        """Record that so many messages before or in this batch, from sequence `first` on, are missing.

        Stream by stream: thousands of gaps may be more than a segment takes, too.
        """
        hosted = self._hosted
        missed = Missed(batch.publisher, batch.epoch, batch.topic, first, count)

        def miss(stream: Stream, now_us: int) -> None:
            if hosted.vhost.registry.streams.get(stream.name) is stream:
                hosted.vhost.miss(stream, missed, now_us)

        for stream in hosted.vhost.capturing(batch.topic):
            await self._with_room(partial(miss, stream))

    async def _with_room(self, append: Callable[[int], None]) -> None:
        """Do it at this time, once there is room. Raises TooLarge."""
        hosted = self._hosted
        while True:
            try:
                await hosted.log.with_room(lambda: append(hosted.clock.now_us()))
                return
            except StoreFull:  # The inbox fills meanwhile, and then drops, which becomes a gap.
                await trio.sleep(FULL_PAUSE_S)


def _batch(delivery: Delivery) -> Batch:
    """Exactly its messages."""
    return cut(delivery.batch, delivery.sequence, delivery.sequence + len(delivery))
