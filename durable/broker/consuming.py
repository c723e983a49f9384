"""A consumer's session: deliveries out, settlements in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from mesh.names import short
from mesh.nursery import open_nursery
from mesh.protocol.batch import Batch
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import ConsumerCancelled, Malformed, QueueInUse, StoreFailed
from ..protocol import parts
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import (
    HURRY,
    LEAVING,
    SETTLE,
    SETTLED,
    decode_settlements,
    encode_ended,
    encode_number,
)  # fmt: skip
from ..queues.consumers import Consumer
from ..queues.queue import ACK, LOST, REJECT, RELEASE, REQUEUE, Delivery, Queue
from ..routing.permissions import for_read
from ..tunnels import ends_with_tunnel
from ..vhost.groups import part_of
from .ending import in_the_end
from .hosted import Hosted
from .peer import Peer
from .slices import Part, Slices

OUTCOMES = {
    parts.ACK: ACK, parts.REQUEUE: REQUEUE, parts.REJECT: REJECT, parts.RELEASE: RELEASE,
}  # fmt: skip
OWN_END_S, OWN_END_LOOKS = 0.1, 10
"""How long one that wants to be alone waits for another of its node, which may be about to end; so many times: a loop
that is late for once spends one of them, and finds that end as it goes on."""
UNSENT_BYTES, UNSENT_SLICES = 1 << 20, 1000
"""What may wait here for room in the tunnel: of a consumer that does not ack; of any other, about."""


async def serve_consumer(tunnel: Tunnel, hello: Hello, hosted: Hosted, peer: Peer) -> None:
    """Until the client or the queue ends.

    Raises:
        DurableError: why it was refused, or ended.
    """
    name = hello.field("queue", str)
    needs = [*for_read("queue", name)]
    peer.check(needs)

    def look_up() -> Queue:
        queue = hosted.vhost.registry.queue(name)
        peer.check_own(queue)
        return queue

    no_ack = hello.field("no_ack", bool, False)
    prefetch = hello.field("prefetch", int, 0)
    prefetch_bytes = hello.field("prefetch_bytes", int, 0)
    consumer = Consumer(
        f"{tunnel.caller} {short(tunnel.node)}", prefetch=0 if no_ack else prefetch,
        prefetch_bytes=UNSENT_BYTES if no_ack else prefetch_bytes,
        priority=hello.field("priority", int, 0), exclusive=hello.field("exclusive", bool, False),
        peeks=hello.field("peek", bool, False),
    )  # fmt: skip
    queue = await _subscribe(hosted, look_up, consumer)
    session = _Session(tunnel, hosted, queue, consumer, no_ack=no_ack)
    hosted.attach_consumer(consumer, session)
    unsettled = RELEASE if consumer.peeks else REQUEUE
    try:
        await tunnel.send(encode_answer(Answer(0, {})))
        hosted.wake(queue)
        async with open_nursery() as nursery:
            nursery.start_soon(session.deliver)
            nursery.start_soon(session.report_settled)
            nursery.start_soon(hosted.until_refused, peer, needs)
            async for part in tunnel:
                session.settle(part)
            # It has left in order: what its user was handed, it has settled. Others may have the rest at once.
            consumer.leaving = True
            queue.settle(consumer, 0, consumer.next_tag, RELEASE)
            hosted.wake(queue)
            nursery.start_soon(session.end_deserted, nursery.cancel_scope)
            await session.synced()  # It waits for this tunnel's end.
            nursery.cancel_scope.cancel()
    finally:
        hosted.detach_consumer(consumer)
        if hosted.leaving:  # Nor is it the consumer's fault that this broker stops.
            unsettled = RELEASE
        queue.unsubscribe(consumer, hosted.clock.now_us(), unsettled)
        with in_the_end():
            await hosted.consumer_left(queue, peeked=consumer.peeks)


async def _subscribe(hosted: Hosted, look_up: Callable[[], Queue], consumer: Consumer) -> Queue:
    """Whoever left by an error has not waited for our side of its tunnel to end, and may be in its own way.

    Args:
        look_up: the queue, each time: it may have gone with that one. What it raises ends this.
    Raises:
        QueueInUse: somebody else is, or it is still there.
    """
    for _ in range(OWN_END_LOOKS):
        with trio.move_on_after(OWN_END_S):
            while True:
                queue = look_up()
                try:
                    queue.subscribe(consumer)
                except QueueInUse:
                    if all(one.id != consumer.id for one in queue.consumers):
                        raise
                else:
                    return queue
                await hosted.left.wait()
    queue = look_up()
    queue.subscribe(consumer)
    return queue


class _Session:
    def __init__(
        self, tunnel: Tunnel, hosted: Hosted, queue: Queue, consumer: Consumer, *, no_ack: bool
    ) -> None:
        self._no_ack = no_ack
        self._tunnel, self._hosted, self._queue, self._consumer = tunnel, hosted, queue, consumer
        self._waiting: deque[Delivery] = deque()
        self._waker = Waker()
        self._settle_parts = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        """(count of settle parts, number of the flush that takes them)"""
        self._cancelled: ConsumerCancelled | None = None

    def receive(self, deliveries: list[Delivery]) -> None:
        """Called by the pump."""
        self._waiting += deliveries
        self._consumer.paused = len(self._waiting) >= UNSENT_SLICES
        self._waker.wake()

    def cancel(self, reason: str) -> None:
        """The queue is gone, or somebody took over."""
        self._cancelled = ConsumerCancelled(self._queue.name, reason)
        self._waiting.clear()
        self._waker.wake()

    @ends_with_tunnel
    async def deliver(self) -> None:
        """Send what was received, bodies and all."""
        waiting, consumer = self._waiting, self._consumer
        slices = Slices(self._queue.name, self._tunnel.part_bytes_max)
        while True:
            while waiting and not slices.full:
                delivery = waiting.popleft()
                if consumer.paused and len(waiting) < UNSENT_SLICES // 2:
                    consumer.paused = False
                    self._hosted.wake(self._queue)
                tag = delivery.tag
                for batch in await self._batches(delivery):
                    slices.add(tag, delivery.returned, batch)
                    tag += batch.count
            if ready := slices.take():
                for part in ready:
                    await self._send(part)
                continue
            if self._cancelled is not None:
                await self._tunnel.send(encode_ended(self._cancelled))
                await self._tunnel.send_eof()
                return
            await self._waker.wait()

    async def _send(self, part: Part) -> None:
        await self._tunnel.send(part.data)
        if self._no_ack:
            self._queue.settle(self._consumer, 0, part.end, ACK)
            self._hosted.wake(self._queue)

    async def _batches(self, delivery: Delivery) -> list[Batch]:
        """Exactly the messages of this delivery; none, and they are settled, when they are lost."""
        if self._cancelled is not None:
            return []
        start, end = delivery.first, delivery.first + delivery.count
        found = await self._hosted.batches(delivery.lane, start, end)
        if found is None:
            self._queue.settle(self._consumer, delivery.tag, delivery.tag + delivery.count, LOST)
            self._hosted.wake(self._queue)
            return []
        return [part_of(batch, first, start, end) for batch, first in found]

    def settle(self, part: bytes) -> None:
        """What the client sent. Raises Malformed."""
        if part == HURRY:
            self._hosted.hurry()
            return
        if part == LEAVING:
            self._consumer.leaving = True
            return
        if part[:1] != SETTLE:
            raise Malformed("a part that is no settlement")
        for outcome, start, end in decode_settlements(part):
            self._queue.settle(self._consumer, start, end, OUTCOMES[outcome])
        self._settle_parts += 1
        settling, unsynced = self._hosted.vhost.settling, self._unsynced
        flush = settling.next_flush()
        # A client that hears nothing gathers no more than there are flushes under way.
        while len(unsynced) > 1 and unsynced[1][1] <= settling.durable:
            unsynced.popleft()
        if unsynced and unsynced[-1][1] == flush:
            unsynced.pop()
        unsynced.append((self._settle_parts, flush))
        self._hosted.wake(self._queue)

    async def synced(self) -> None:
        """Return when all that was settled is on disk, or nobody will ever know."""
        hosted = self._hosted
        if not self._unsynced:
            return
        flush = self._unsynced[-1][1]
        hosted.hurry()
        while hosted.vhost.settling.durable < flush and hosted.log.failure is None:
            await hosted.settled.wait()

    async def end_deserted(self, scope: trio.CancelScope) -> None:
        """Whoever has gone, or given up, waits for nothing any more, and is in the way of who wants to be alone."""
        await self._tunnel.deserted()
        scope.cancel()

    @ends_with_tunnel
    async def report_settled(self) -> None:
        """Tell the client up to which of its parts everything is on disk.

        Raises:
            StoreFailed: nobody knows, and never will.
        """
        unsynced, hosted = self._unsynced, self._hosted
        while True:
            done = 0
            while unsynced and unsynced[0][1] <= hosted.vhost.settling.durable:
                done = unsynced.popleft()[0]
            if done:
                await self._tunnel.send(encode_number(SETTLED, done))
            elif unsynced and hosted.log.failure is not None:
                raise StoreFailed(hosted.log.failure)
            else:
                await hosted.settled.wait()
