"""What one consumer settles, and how far that is on disk."""

from __future__ import annotations

from collections import deque

from mesh.tunnel import Tunnel

from ..errors import Malformed, StoreFailed
from ..protocol import parts
from ..protocol.parts import (
    HURRY,
    LEAVING,
    SETTLE,
    SETTLED,
    decode_settlements,
    encode_number,
)  # fmt: skip
from ..queues.consumers import Consumer
from ..queues.queue import ACK, REJECT, RELEASE, REQUEUE, Queue
from ..tunnels import ends_with_tunnel
from .running_vhost import RunningVhost

OUTCOMES = {
    parts.ACK: ACK, parts.REQUEUE: REQUEUE, parts.REJECT: REJECT, parts.RELEASE: RELEASE,
}  # fmt: skip


class Settlements:
    """The settlements of one session."""

    def __init__(
        self, tunnel: Tunnel, running: RunningVhost, queue: Queue, consumer: Consumer
    ) -> None:
        self._tunnel, self._running, self._queue, self._consumer = tunnel, running, queue, consumer
        self._parts = 0
        """Number of parts with settlements that came."""
        self._unsynced: deque[tuple[int, int]] = deque()
        """(count of such parts, number of the flush that makes them durable)."""

    def receive(self, part: bytes) -> bool:
        """Handle a part that the client sent; the caller runs the pump after that. Returns True. Raises Malformed."""
        if part == HURRY:
            self._running.vhost.settling.hurry()
            return True
        if part == LEAVING:
            self._consumer.leaving = True
            return True
        if part[:1] != SETTLE:
            raise Malformed("a part that is not a settlement")
        for outcome, start, end in decode_settlements(part):
            self._queue.settle(self._consumer, start, end, OUTCOMES[outcome])
        self._parts += 1
        settling, unsynced = self._running.vhost.settling, self._unsynced
        flush = settling.next_flush()
        # If the client reads no reports, no more entries are kept than there are flushes under way.
        while len(unsynced) > 1 and unsynced[1][1] <= settling.durable_flush:
            unsynced.popleft()
        if unsynced and unsynced[-1][1] == flush:
            unsynced.pop()
        unsynced.append((self._parts, flush))
        if self._queue.ready:
            self._running.note_ready(self._queue)
        return True

    async def synced(self) -> None:
        """Return when everything settled is on disk, or never will be known to be."""
        running = self._running
        if not self._unsynced:
            return
        flush = self._unsynced[-1][1]
        running.hurry()
        while running.vhost.settling.durable_flush < flush and running.log.failure is None:
            await running.settlements_durable.wait()

    @ends_with_tunnel
    async def report(self) -> None:
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
