"""A consumer's session: sends deliveries, while settlements.py takes what is settled of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from mesh.names import short_id
from mesh.nursery import open_nursery
from mesh.protocol.batch import Batch
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import ConsumerCancelled, QueueInUse
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import encode_ended
from ..queues.consumers import Consumer
from ..queues.queue import ACK, LOST, RELEASE, REQUEUE, Delivery, Queue
from ..routing.permissions import for_read
from ..tunnels import ends_with_tunnel
from ..vhost.groups import part_of
from .auto_deletion import final_write_scope
from .peer import Peer
from .running_vhost import RunningVhost
from .settlements import Settlements
from .slices import Part, Slices

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
    settlements = Settlements(tunnel, running, queue, consumer)
    running.attach_consumer(consumer, session)
    unsettled = RELEASE if consumer.peeks else REQUEUE
    try:
        await tunnel.send(encode_answer(Answer(0, {})))
        running.wake(queue)
        async with open_nursery() as nursery:
            nursery.start_soon(session.deliver)
            nursery.start_soon(settlements.report)
            nursery.start_soon(running.watch_permissions, peer, needs)
            await tunnel.each(settlements.receive, running.pump_once)
            # The client has left in order: it has settled whatever its user was handed. Others may have the
            # rest at once, and it does not count as returned.
            consumer.leaving = True
            queue.settle(consumer, 0, consumer.next_tag, RELEASE)
            running.wake(queue)
            nursery.start_soon(_end_deserted, tunnel, nursery.cancel_scope)
            await settlements.synced()  # The client waits for the end of this tunnel.
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
    """Delivers to one consumer."""

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


async def _end_deserted(tunnel: Tunnel, scope: trio.CancelScope) -> None:
    """End the session when the client is gone or has given up: it waits for nothing any more, and may be
    in the way of an exclusive consumer."""
    await tunnel.deserted()
    scope.cancel()
