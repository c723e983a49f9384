"""A consumer's session: sends deliveries, receives settlements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from mesh.names import short_id
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
from .auto_deletion import final_write_scope
from .peer import Peer
from .running_vhost import RunningVhost
from .slices import Part, Slices

OUTCOMES = {
    parts.ACK: ACK, parts.REQUEUE: REQUEUE, parts.REJECT: REJECT, parts.RELEASE: RELEASE,
}  # fmt: skip
FORMER_WAIT_S, FORMER_WAITS = 0.1, 10
"""How long a consumer that is refused as QueueInUse waits for another one of its own node to end, and how
many times. Several short waits: a loop that was blocked loses one of them, and finds that the other has
ended in the next."""
UNSENT_BYTES, UNSENT_SLICES = 1 << 20, 1000
"""What may wait here for room in the tunnel: bytes, for a consumer that does not ack; and, approximately,
deliveries of any consumer."""


async def serve_consumer(tunnel: Tunnel, hello: Hello, running: RunningVhost, peer: Peer) -> None:
    """Serve one consumer until the client or the queue ends.

    Raises:
        DurableError: why it was refused, or ended.
    """
    name = hello.field("queue", str)
    needs = [*for_read("queue", name)]
    peer.check(needs)

    def look_up() -> Queue:
        queue = running.vhost.registry.queue(name)
        peer.check_own(queue)
        return queue

    no_ack = hello.field("no_ack", bool, False)
    prefetch = hello.field("prefetch", int, 0)
    prefetch_bytes = hello.field("prefetch_bytes", int, 0)
    consumer = Consumer(
        f"{tunnel.caller} {short_id(tunnel.node)}", prefetch=0 if no_ack else prefetch,
        prefetch_bytes=UNSENT_BYTES if no_ack else prefetch_bytes,
        priority=hello.field("priority", int, 0), exclusive=hello.field("exclusive", bool, False),
        peeks=hello.field("peek", bool, False),
    )  # fmt: skip
    queue = await _subscribe(running, look_up, consumer)
    session = _Session(tunnel, running, queue, consumer, no_ack=no_ack)
    running.attach_consumer(consumer, session)
    unsettled = RELEASE if consumer.peeks else REQUEUE
    try:
        await tunnel.send(encode_answer(Answer(0, {})))
        running.wake(queue)
        async with open_nursery() as nursery:
            nursery.start_soon(session.deliver)
            nursery.start_soon(session.report_settled)
            nursery.start_soon(running.watch_permissions, peer, needs)
            async for part in tunnel:
                session.settle(part)
            # The client has left in order: it has settled whatever its user was handed. Others may have the
            # rest at once, and it does not count as returned.
            consumer.leaving = True
            queue.settle(consumer, 0, consumer.next_tag, RELEASE)
            running.wake(queue)
            nursery.start_soon(session.end_deserted, nursery.cancel_scope)
            await session.synced()  # The client waits for the end of this tunnel.
            nursery.cancel_scope.cancel()
    finally:
        running.detach_consumer(consumer)
        # It is not the consumer's fault that this broker stops, so nothing counts as returned.
        if running.leaving:
            unsettled = RELEASE
        queue.unsubscribe(consumer, running.clock.now_us(), unsettled)
        with final_write_scope():
            await running.consumer_left(queue, peeked=consumer.peeks)


async def _subscribe(
    running: RunningVhost, look_up: Callable[[], Queue], consumer: Consumer
) -> Queue:
    """Subscribe the consumer. A client that left by an error has not waited for our side of its tunnel to
    end, so its former consumer may be in the way of its new one.

    Args:
        look_up: returns the queue. Called again after each wait, because the queue may have been deleted
            with the former consumer. What it raises is raised here.
    Raises:
        QueueInUse: another node's consumer is in the way, or the former one has not ended in time.
    """
    for _ in range(FORMER_WAITS):
        with trio.move_on_after(FORMER_WAIT_S):
            while True:
                queue = look_up()
                try:
                    queue.subscribe(consumer)
                except QueueInUse:
                    if all(one.id != consumer.id for one in queue.consumers):
                        raise
                else:
                    return queue
                await running.consumer_gone.wait()
    queue = look_up()
    queue.subscribe(consumer)
    return queue


class _Session:
    def __init__(
        self,
        tunnel: Tunnel,
        running: RunningVhost,
        queue: Queue,
        consumer: Consumer,
        *,
        no_ack: bool,
    ) -> None:
        self._no_ack = no_ack
        self._tunnel, self._running, self._queue, self._consumer = tunnel, running, queue, consumer
        self._waiting: deque[Delivery] = deque()
        self._waker = Waker()
        self._settle_parts = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        """(count of settle parts, number of the flush that makes them durable)."""
        self._cancelled: ConsumerCancelled | None = None

    def receive(self, deliveries: list[Delivery]) -> None:
        """Take deliveries; called by the pump."""
        self._waiting += deliveries
        self._consumer.paused = len(self._waiting) >= UNSENT_SLICES
        self._waker.wake()

    def cancel(self, reason: str) -> None:
        """End the session: the queue is gone."""
        self._cancelled = ConsumerCancelled(self._queue.name, reason)
        self._waiting.clear()
        self._waker.wake()

    @ends_with_tunnel
    async def deliver(self) -> None:
        """Send what was received, with bodies, until cancelled."""
        waiting, consumer = self._waiting, self._consumer
        slices = Slices(self._queue.name, self._tunnel.part_bytes_max)
        while True:
            while waiting and not slices.full:
                delivery = waiting.popleft()
                if consumer.paused and len(waiting) < UNSENT_SLICES // 2:
                    consumer.paused = False
                    self._running.wake(self._queue)
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
            self._running.wake(self._queue)

    async def _batches(self, delivery: Delivery) -> list[Batch]:
        """Return exactly the messages of this delivery. If they are lost, settle them and return none."""
        if self._cancelled is not None:
            return []
        start, end = delivery.first, delivery.first + delivery.count
        found = await self._running.batch_reader.read(delivery.lane, start, end)
        if found is None:
            self._queue.settle(self._consumer, delivery.tag, delivery.tag + delivery.count, LOST)
            self._running.wake(self._queue)
            return []
        return [part_of(batch, first, start, end) for batch, first in found]

    def settle(self, part: bytes) -> None:
        """Handle a part that the client sent. Raises Malformed."""
        if part == HURRY:
            self._running.hurry()
            return
        if part == LEAVING:
            self._consumer.leaving = True
            return
        if part[:1] != SETTLE:
            raise Malformed("a part that is not a settlement")
        for outcome, start, end in decode_settlements(part):
            self._queue.settle(self._consumer, start, end, OUTCOMES[outcome])
        self._settle_parts += 1
        settling, unsynced = self._running.vhost.settling, self._unsynced
        flush = settling.next_flush()
        # If the client reads no reports, no more entries are kept than there are flushes under way.
        while len(unsynced) > 1 and unsynced[1][1] <= settling.durable_flush:
            unsynced.popleft()
        if unsynced and unsynced[-1][1] == flush:
            unsynced.pop()
        unsynced.append((self._settle_parts, flush))
        self._running.wake(self._queue)

    async def synced(self) -> None:
        """Return when everything settled is on disk, or never will be known to be."""
        running = self._running
        if not self._unsynced:
            return
        flush = self._unsynced[-1][1]
        running.hurry()
        while running.vhost.settling.durable_flush < flush and running.log.failure is None:
            await running.settlements_durable.wait()

    async def end_deserted(self, scope: trio.CancelScope) -> None:
        """End the session when the client is gone or has given up: it waits for nothing any more, and may be
        in the way of an exclusive consumer."""
        await self._tunnel.deserted()
        scope.cancel()

    @ends_with_tunnel
    async def report_settled(self) -> None:
        """Tell the client up to which of its parts everything is on disk, until cancelled.

        Raises:
            StoreFailed: it will never be known.
        """
        unsynced, running = self._unsynced, self._running
        while True:
            done = 0
            while unsynced and unsynced[0][1] <= running.vhost.settling.durable_flush:
                done = unsynced.popleft()[0]
            if done:
                await self._tunnel.send(encode_number(SETTLED, done))
            elif unsynced and running.log.failure is not None:
                raise StoreFailed(running.log.failure)
            else:
                await running.settlements_durable.wait()
