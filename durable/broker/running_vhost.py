"""A vhost that is running: its log, and the pump between the two.

    sessions ──publish, settle──> vhost ──append──> log
        ^                                            │ commit
        └── confirms, deliveries <── pump <──────────┘

The pump runs when a commit has ended or a session has work for it, once for everything that has gathered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from mesh.waker import Bell, Waker

from ..errors import DurableError, StoreError, StoreFailed
from ..log.log import Log
from ..log.scan import POSITION_MAX
from ..queues.consumers import Consumer
from ..queues.queue import Delivery, Queue
from ..routing.permissions import Need
from ..vhost.changes import QUEUE_GONE, Change
from ..vhost.publishers import Publisher
from ..vhost.vhost import Vhost
from .auto_deletion import AutoDeletions
from .batch_reader import BatchReader
from .change_writer import ChangeWriter
from .clock import SteadyClock
from .peer import Peer

DELIVERIES_AT_ONCE = 1000
"""Deliveries in one turn of the pump; a queue that has none counts as one."""


class PublisherSession(Protocol):
    """What the pump needs of a publisher's session."""

    def confirm(self) -> None: ...
    def fail(self, error: DurableError) -> None: ...
    def replaced(self) -> None: ...


class ConsumerSession(Protocol):
    """What the pump needs of a consumer's session."""

    def receive(self, deliveries: list[Delivery]) -> None: ...
    def cancel(self, reason: str) -> None: ...


class RunningVhost:
    """One running vhost of a broker."""

    def __init__(self, vhost: Vhost, log: Log, clock: SteadyClock) -> None:
        self.vhost, self.log, self.clock = vhost, log, clock
        self.batch_reader = BatchReader(log.read, vhost.bodies)
        self.change_writer = ChangeWriter(vhost, log, clock, self.wake)
        self._work = Waker()
        self.settlements_durable = Bell()
        """Rings when settlements have become durable, or never will because the log has failed."""
        self.dead_waiting = Waker()
        """Wakes the task that dead-letters messages."""
        self.auto_deletions = AutoDeletions(self.delete_queue)
        self.messages_durable = Bell()
        """Rings when messages have become durable: stream readers look again."""
        self.consumer_gone = Bell()
        """Rings when a consumer has left."""
        self._busy: OrderedDict[Queue, None] = OrderedDict()
        self._publishers: dict[bytes, PublisherSession] = {}
        self._sessions: dict[Consumer, ConsumerSession] = {}
        self.applied_end = log.durable_end
        """All records before this log position have been applied to their lanes."""
        self.carried_from = POSITION_MAX
        """Records from this log position on are copies by compaction, to which not all lanes point yet."""
        self.leaving = False
        """Whether consumers are leaving because the broker is closing; they come back when it runs again."""

    def wake(self, queue: Queue | None = None) -> None:
        """Run the pump soon; `queue` may have something to deliver."""
        if queue is not None:
            self.note_ready(queue)
        self._work.wake()

    def note_ready(self, queue: Queue) -> None:
        """Note that `queue` may have something to deliver when the pump runs next."""
        self._busy[queue] = None

    def note_declared(self, queue: Queue) -> None:
        """Note that a client has declared this queue, which was there already: it has to find it there."""
        queue.note_use(self.clock.now_us())
        self.auto_deletions.discard(queue)

    def hurry(self) -> None:
        """A task waits for everything settled until now to be durable."""
        self.vhost.settling.hurry()
        self._work.wake()

    async def run(self) -> None:
        """Run the pump until cancelled."""
        # In the very turn in which the commit ends: handing over to this task would be part of every
        # confirm's time.
        self.log.on_commit = self.pump_once
        while True:
            self.pump_once()
            await self._work.wait()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to the disk."""
        return self.log.durable_end == self.log.end

    def pump_once(self) -> None:
        """Do everything there is to do at this moment: one turn of the pump."""
        if self.log.failure is not None:
            self._report_failure(self.log.failure)
        now_us, settling = self.clock.now_us(), self.vhost.settling
        durable = settling.durable_flush
        durable_end = self.log.durable_end
        # First, so that a waiting publisher does not also wait for the rest of this turn.
        for publisher in self.vhost.intake.take_decided(durable_end):
            session = self._publishers.get(publisher.id)
            if session is not None:
                session.confirm()
        self.vhost.committed(durable_end, now_us)
        self.applied_end = min(durable_end, self.carried_from)
        self.messages_durable.wake()
        self._deliver(now_us)
        if self.vhost.has_dead:
            self.dead_waiting.wake()
        settling.flush(now_us)
        if settling.durable_flush > durable:
            self.settlements_durable.wake()

    def _report_failure(self, reason: str) -> None:
        """Nothing will be confirmed any more: tell all publishers so, once."""
        self.settlements_durable.wake()
        publishers, self._publishers = self._publishers, {}
        for session in publishers.values():
            session.fail(StoreFailed(reason))

    def _deliver(self, now_us: int) -> None:
        busy, left = self._busy, DELIVERIES_AT_ONCE
        busy.update(self.vhost.intake.take_arrived())
        while busy and left > 0:
            queue, _ = busy.popitem(last=False)
            by_consumer: dict[Consumer, list[Delivery]] = {}
            deliveries = queue.take(now_us, left)
            left -= max(1, len(deliveries))
            if left <= 0:  # It may have more; it comes after all queues that wait already.
                busy[queue] = None
            for delivery in deliveries:
                by_consumer.setdefault(delivery.consumer, []).append(delivery)
            for consumer, own in by_consumer.items():
                self._sessions[consumer].receive(own)
        if busy:
            self.wake()

    async def delete_queue(
        self, queue: Queue, reason: str, *, stays: Callable[[], bool] = lambda: False
    ) -> None:
        """Delete a queue with its messages, including dead ones not dead-lettered yet, and tell its consumers.

        Args:
            stays: whether to keep the queue after all; asked right before it is deleted. What it raises is
                raised here.
        """
        queues = self.vhost.registry.queues

        def make_changes() -> Sequence[Change]:
            if queues.get(queue.name) is not queue or stays():
                return []
            return [[QUEUE_GONE, queue.name]]

        try:
            await self.change_writer.write(make_changes)
        except StoreError:  # A transient queue ends, whatever the log can take.
            if queue.logged:
                raise
            async with self.change_writer.gate.shared():
                for change in make_changes():
                    self.vhost.registry.apply(change)
        finally:
            if queues.get(queue.name) is not queue:
                self.auto_deletions.discard(queue)
                self.vhost.settling.release_held()  # Before the answer, as for a purge.
                for consumer in list(queue.consumers):
                    self._sessions[consumer].cancel(reason)

    async def delete_exclusive(self, lanes: Iterable[int]) -> None:
        """Delete the exclusive queues of a connection that has ended, given by their first lanes. When
        cancelled, the remaining ones are deleted later."""
        owners = self.vhost.registry.owners
        queues = [one for one in map(owners.get, lanes) if isinstance(one, Queue)]
        for queue in queues:
            self.auto_deletions.add(queue, "its connection ended", stays=lambda: False)
        for queue in queues:
            await self.auto_deletions.delete(queue)

    async def consumer_left(self, queue: Queue, *, peeked: bool = False) -> None:
        """A consumer has left: give what it had to others, and delete an auto-delete queue with its last
        consumer, unless that one only peeked. When cancelled, the queue is deleted later."""
        self.consumer_gone.wake()
        self.wake(queue)

        def stays() -> bool:
            return self.leaving or not all(one.peeks for one in queue.consumers)

        exists = self.vhost.registry.queues.get(queue.name) is queue
        if exists and queue.definition.auto_delete and not (peeked or stays()):
            self.auto_deletions.add(queue, "its last consumer left", stays=stays)
            await self.auto_deletions.delete(queue)

    async def purge(self, queue: Queue) -> int:
        """Settle all ready messages, and return how many when that is on disk.

        Raises:
            StoreFull: there is no room to log it. If it takes several records, earlier ones are settled;
                else all stay.
            StoreFailed, StoreClosed: it is unknown which messages come back.
        """
        self.wake()
        if not queue.logged:
            purged = queue.purge()
            # Before the answer: its client may publish at once, and would be refused until the next turn.
            self.vhost.settling.release_held()
            return purged
        purged = 0
        for lane, end in [(lane, lane.index.end) for lane in queue.lanes]:
            settle = partial(self.vhost.purge, lane, end, self.clock.now_us())
            while count := await self.log.with_room(settle):
                purged += count
        await self.log.wait_durable(self.log.end - 1)
        return purged

    # Sessions

    def attach_publisher(self, publisher: Publisher, session: PublisherSession) -> None:
        """Call `session.confirm` whenever more of what this publisher sent is decided."""
        before = self._publishers.get(publisher.id)
        if before is not None:
            before.replaced()
        self._publishers[publisher.id] = session

    def detach_publisher(self, publisher: Publisher, session: PublisherSession) -> None:
        if self._publishers.get(publisher.id) is session:
            del self._publishers[publisher.id]

    def attach_consumer(self, consumer: Consumer, session: ConsumerSession) -> None:
        """Hand the deliveries of `consumer` to `session`."""
        self._sessions[consumer] = session

    def detach_consumer(self, consumer: Consumer) -> None:
        del self._sessions[consumer]

    async def watch_permissions(self, peer: Peer, needs: Sequence[Need]) -> None:
        """Run beside a session, to end it when its peer loses a permission; never returns.

        Raises:
            AccessRefused: the peer lacks a permission now.
        """
        while True:
            peer.check(needs)
            await self.change_writer.permissions_changed.wait()
