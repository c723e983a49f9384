"""Live topics into streams: publishers know nothing of it.

One subscription per pattern of any stream. They share: of those that match a message, only the one
that was subscribed first gets it. What waits in one whose last stream is deleted is stored for the
streams that are left, before what comes of the same topics in others. What was lost on the way, or
dropped here because the disk was slower than the publishers for too long, or is more than a segment
takes, is recorded as a gap. Order is kept per topic, not between topics of several patterns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import trio

from mesh.errors import InvalidName, LimitReached, NodeClosed, TooLarge
from mesh.names import read_pattern
from mesh.node import Node
from mesh.protocol.batch import Batch
from mesh.protocol.inbox import Delivery
from mesh.protocol.sharing import Sharing, overlap
from mesh.subscription import Subscription

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

    pattern: str
    turn: int
    """Lower than of those that were subscribed later."""
    subscription: Subscription
    closed: bool = False
    """No stream wants it any more: nothing comes, but what waits is stored for others."""
    warned: bool = False
    """Of a message that is too large. Further ones are gaps like that one, and there may be any number."""
    ended: trio.Event = field(default_factory=trio.Event)


class Capture:
    """Of one vhost."""

    def __init__(self, hosted: Hosted, node: Node, inbox_bytes: int) -> None:
        self._hosted, self._node, self._inbox_bytes = hosted, node, inbox_bytes
        self._running: dict[str, _Subscribed] = {}
        self._leaving: list[_Subscribed] = []
        """Those that are closed, in this order, until they have ended and `run` has seen it."""
        self._turns = count()
        self._sharing = Sharing()
        self._refused: set[str] = set()
        """Patterns that the node takes no subscription for, each said once."""

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                wanted = self._hosted.vhost.registry.patterns
                self._refused.intersection_update(wanted)
                ended = [one for one in self._leaving if one.ended.is_set()]
                for one in list(self._running.values()):
                    if one.ended.is_set():  # It was refused, and there may be room now.
                        del self._running[one.pattern]
                    elif one.pattern not in wanted:
                        self._leave(one)
                for pattern in [one for one in wanted if one not in self._running]:
                    await self._until_room()
                    await nursery.start(self._subscribe, pattern)
                for one in ended:
                    self._leaving.remove(one)
                await self._hosted.streams_changed.wait()

    def _leave(self, one: _Subscribed) -> None:
        del self._running[one.pattern]
        one.closed = True
        one.subscription.close()
        self._leaving.append(one)

    async def _until_room(self) -> None:
        """Each of those that leave may hold a full inbox, so they count like others until they have ended."""
        while there := [one for one in self._leaving if not one.ended.is_set()]:
            room = self._node.config.subscriptions_max - len(self._running)
            if not 0 < room <= len(there):
                return
            await there[0].ended.wait()

    async def _subscribe(
        self, pattern: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        subscription = self._node.subscribe(
            pattern, when_full="drop_newest", limit_bytes=self._inbox_bytes
        )
        # A stream may have got from these already what it goes on to get from this one.
        subscription.share(self._sharing, [one.subscription for one in self._leaving])
        one = self._running[pattern] = _Subscribed(pattern, next(self._turns), subscription)
        try:
            async with subscription:
                self._refused.discard(pattern)
                task_status.started()
                await self._take(one)
        except (InvalidName, LimitReached) as error:
            # It is declared, and must not keep this broker from starting.
            if pattern not in self._refused:
                logger.error("pattern %s is not captured: %s", pattern, error)
            self._refused.add(pattern)
            task_status.started()
        except NodeClosed:
            if not one.closed:
                raise
        finally:
            one.ended.set()
            if one.closed:
                self._hosted.streams_changed.wake()

    async def _take(self, one: _Subscribed) -> None:
        """Until nothing more comes: then it raises NodeClosed."""
        while True:
            delivery = await one.subscription.take()
            if self._leaving:
                await self._until_first(one, delivery.topic)
            with suppress(StoreFailed):  # Which has been said; the rest goes on.
                await self._store(one, delivery)

    async def _until_first(self, one: _Subscribed, topic: str) -> None:
        """Until no other has what came of this topic before. Nobody waits for one of a later turn."""
        words = tuple(topic.split("."))
        for closed in [*self._leaving]:
            if closed.turn < one.turn and overlap(read_pattern(closed.pattern), words):
                await closed.ended.wait()

    async def _store(self, one: _Subscribed, delivery: Delivery) -> None:
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
                    if not one.warned:
                        one.warned = True
                        logger.warning(
                            "a message of topic %s is not captured: %s; further ones of %s are counted only",
                            batch.topic, error, one.pattern,
                        )  # fmt: skip
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
