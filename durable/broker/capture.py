"""Captures live topics into streams; publishers are not aware of it.

There is one subscription for each pattern of any stream. The subscriptions share messages: of those that
match a message, only the one that was opened first gets it. When the last stream of a pattern is deleted,
what waits in its subscription is still stored for other streams, before what other subscriptions have got
of the same topics. Messages become a gap if they were lost on the way, if the inbox dropped them because
the disk was slower than the publishers for too long, or if they are larger than a segment can take. Order
is kept per topic, not between the topics of different patterns.
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
from mesh.names import check_existing_pattern
from mesh.node import Node
from mesh.protocol.batch import Batch
from mesh.protocol.inbox import Delivery
from mesh.protocol.sharing import Sharing, overlap
from mesh.subscription import Subscription

from ..errors import StoreFailed, StoreFull
from ..log.bodies import Missed
from ..vhost.routes import cut
from ..vhost.stream import Stream
from .running_vhost import RunningVhost

logger = logging.getLogger("durable")
FULL_PAUSE_S = 0.1


@dataclass(slots=True, eq=False)
class _PatternSubscription:
    """The subscription of one pattern."""

    pattern: str
    number: int
    """Lower than that of subscriptions that were opened later."""
    subscription: Subscription
    closed: bool = False
    """Whether no stream has the pattern any more: nothing new comes, but what waits is stored for other
    streams."""
    warned: bool = False
    """Whether a message that is too large has been logged. Further ones become gaps without a line each,
    because there may be any number."""
    ended: trio.Event = field(default_factory=trio.Event)


class Capture:
    """The capture of one vhost."""

    def __init__(self, running: RunningVhost, node: Node, inbox_bytes: int) -> None:
        self._running, self._node, self._inbox_bytes = running, node, inbox_bytes
        self._subscriptions: dict[str, _PatternSubscription] = {}
        self._closing: list[_PatternSubscription] = []
        """Closed subscriptions, in the order of closing, until they have ended and `run` has noticed."""
        self._numbers = count()
        self._sharing = Sharing()
        self._refused: set[str] = set()
        """Patterns that the node refuses to subscribe to; each is logged once."""

    async def run(self) -> None:
        """Open and close subscriptions as streams are declared and deleted, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                wanted = self._running.vhost.registry.patterns
                self._refused.intersection_update(wanted)
                ended = [one for one in self._closing if one.ended.is_set()]
                for one in list(self._subscriptions.values()):
                    if one.ended.is_set():  # The node refused it; it may have room now.
                        del self._subscriptions[one.pattern]
                    elif one.pattern not in wanted:
                        self._close(one)
                for pattern in [one for one in wanted if one not in self._subscriptions]:
                    await self._wait_room()
                    await nursery.start(self._subscribe, pattern)
                for one in ended:
                    self._closing.remove(one)
                await self._running.change_writer.streams_changed.wait()

    def _close(self, one: _PatternSubscription) -> None:
        del self._subscriptions[one.pattern]
        one.closed = True
        one.subscription.close()
        self._closing.append(one)

    async def _wait_room(self) -> None:
        """Wait for a closed subscription to end if only that makes room for another one. Closed ones count
        toward the node's limit until they have ended, because each may hold a full inbox."""
        while closing := [one for one in self._closing if not one.ended.is_set()]:
            room = self._node.config.subscriptions_max - len(self._subscriptions)
            if not 0 < room <= len(closing):
                return
            await closing[0].ended.wait()

    async def _subscribe(
        self, pattern: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        subscription = self._node.subscribe(
            pattern, when_full="drop_newest", limit_bytes=self._inbox_bytes
        )
        # Streams may have got messages of the same publishers from these subscriptions: what is missing in
        # between has to be counted as lost here.
        subscription.share(self._sharing, [one.subscription for one in self._closing])
        one = self._subscriptions[pattern] = _PatternSubscription(
            pattern, next(self._numbers), subscription
        )
        try:
            async with subscription:
                self._refused.discard(pattern)
                task_status.started()
                await self._take(one)
        except (InvalidName, LimitReached) as error:
            # The stream is declared already, and must not keep this broker from starting.
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
                self._running.change_writer.streams_changed.wake()

    async def _take(self, one: _PatternSubscription) -> None:
        """Store what comes, until the subscription is closed and empty; then raises NodeClosed."""
        while True:
            delivery = await one.subscription.take()
            if self._closing:
                await self._wait_earlier(one, delivery.topic)
            with suppress(StoreFailed):  # The failure has been logged; other tasks go on.
                await self._store(one, delivery)

    async def _wait_earlier(self, one: _PatternSubscription, topic: str) -> None:
        """Wait until no closed subscription that was opened earlier has messages of this topic. Since each
        waits only for earlier ones, no two wait for each other."""
        words = tuple(topic.split("."))
        for closed in [*self._closing]:
            if closed.number < one.number and overlap(
                check_existing_pattern(closed.pattern), words
            ):
                await closed.ended.wait()

    async def _store(self, one: _PatternSubscription, delivery: Delivery) -> None:
        """Store a delivery; in pieces if it is more than a segment can take."""
        left, lost = [_batch(delivery)], delivery.lost
        while left:
            batch = left.pop()
            try:
                await self._with_room(partial(self._running.vhost.capture, batch, lost))
            except TooLarge as error:
                # With many streams, the records of the gap may be what makes it too large.
                if lost:
                    await self._append_gap(batch, batch.base_sequence - lost, lost)
                    left.append(batch)
                elif batch.count > 1:
                    front, back = batch.halves()
                    left += [back, front]
                else:
                    if not one.warned:
                        one.warned = True
                        logger.warning(
                            "a message of topic %s was not captured: %s; further ones of pattern %s are counted, but not logged",
                            batch.topic, error, one.pattern,
                        )  # fmt: skip
                    await self._append_gap(batch, batch.base_sequence, 1)
            lost = 0

    async def _append_gap(self, batch: Batch, first: int, count: int) -> None:
        """Record a gap: `count` messages before or in this batch, from sequence `first` on, are missing.

        In one append per stream: thousands of gaps together may be more than a segment can take, too.
        """
        running = self._running
        missed = Missed(batch.publisher, batch.epoch, batch.topic, first, count)

        def append_gap(stream: Stream, now_us: int) -> None:
            if running.vhost.registry.streams.get(stream.name) is stream:
                running.vhost.record_gap(stream, missed, now_us)

        for stream in running.vhost.capturing_streams(batch.topic):
            await self._with_room(partial(append_gap, stream))

    async def _with_room(self, append: Callable[[int], None]) -> None:
        """Call `append` with the time, once there is room. Raises TooLarge."""
        running = self._running
        while True:
            try:
                await running.log.with_room(lambda: append(running.clock.now_us()))
                return
            except StoreFull:  # The inbox fills meanwhile; what it drops becomes a gap.
                await trio.sleep(FULL_PAUSE_S)


def _batch(delivery: Delivery) -> Batch:
    """Return exactly the messages of this delivery."""
    return cut(delivery.batch, delivery.sequence, delivery.sequence + len(delivery))
