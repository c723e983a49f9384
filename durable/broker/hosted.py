"""A vhost that is running: its log, the pump between the two, and bodies when somebody needs them.

    sessions ──publish, settle──> vhost ──append──> log
        ^                                            │ commit
        └── confirms, deliveries <── pump <──────────┘

The pump runs whenever a commit is done or a session says that there is something to do, once for
all that has gathered.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from mesh.errors import RemoteProtocolError, TooLarge
from mesh.protocol.batch import Batch
from mesh.waker import Bell, Waker

from ..errors import DurableError, RecordTooLarge, StoreError, StoreFailed
from ..log.log import Log
from ..log.scan import POSITION_MAX
from ..queues.consumers import Consumer
from ..queues.lane import Lane
from ..queues.queue import Delivery, Queue
from ..queues.runs import Run
from ..routing.permissions import Need
from ..vhost.addition import Addition
from ..vhost.changes import (
    PERMISSION,
    PERMISSION_GONE,
    QUEUE_GONE,
    STREAM,
    STREAM_GONE,
    Change,
)
from ..vhost.groups import batches_in
from ..vhost.publishers import Publisher
from ..vhost.stream import Stream
from ..vhost.vhost import Vhost
from .clock import SteadyClock
from .ending import Endings
from .fetching import Fetching
from .gate import Gate
from .peer import Peer

logger = logging.getLogger("durable")

UNREADABLE_MAX = 10_000
"""Records of which it is remembered that their messages are counted as lost: of more they count each time."""
DELIVERIES_AT_ONCE = 1000
"""In one turn of the pump; a queue that has none counts as one."""

Wanted = Callable[[], Sequence[Change]]


class PublisherSession(Protocol):
    """What the pump knows of a publisher's session."""

    def confirm(self) -> None: ...
    def fail(self, error: DurableError) -> None: ...
    def replaced(self) -> None: ...


class ConsumerSession(Protocol):
    """What the pump knows of a consumer's session."""

    def receive(self, deliveries: list[Delivery]) -> None: ...
    def cancel(self, reason: str) -> None: ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Tellings:
    """Of one cursor, by whichever session: those that wait for room in the log are in no order, and what
    one of a lost connection has left must not come behind what its reader has said since."""

    told: int = 0
    written: int = 0
    """The number of the last one that was."""


class Hosted:
    """One vhost of a running broker."""

    def __init__(self, vhost: Vhost, log: Log, clock: SteadyClock) -> None:
        self.vhost, self.log, self.clock = vhost, log, clock
        self.gate = Gate()
        """For whoever changes what is declared: `change` goes through it."""
        self._fetching = Fetching(log.read, vhost.bodies)
        self._work = Waker()
        self.settled = Bell()
        """Rings when something that was settled has become durable, or nothing ever will."""
        self.died = Waker()
        """For whoever buries the dead."""
        self.endings = Endings(self.delete_queue)
        self.stored = Bell()
        """Rings when messages have become durable: stream readers look again."""
        self.left = Bell()
        """Rings when a consumer has."""
        self._busy: OrderedDict[Queue, None] = OrderedDict()
        self._publishers: dict[bytes, PublisherSession] = {}
        self._sessions: dict[Consumer, ConsumerSession] = {}
        self._tellings: WeakValueDictionary[tuple[Stream, str], Tellings] = WeakValueDictionary()
        """For as long as the cursor has sessions."""
        self._permitted = Bell()
        """Rings when somebody may do more, or less, than before."""
        self.streams_changed = Waker()
        """For whoever captures: streams have been declared or deleted."""
        self.applied_end = log.durable_end
        """Records before this log position have reached their lanes."""
        self.carried_from = POSITION_MAX
        """Records from this log position on are copies that lanes do not all point to yet."""
        self.leaving = False
        """Consumers go because the broker does; they will be back when it is."""
        self.lost = 0
        """Messages that could not be read any more."""
        self._unreadable: set[tuple[int, int]] = set()
        """Lane and log position of those, so that each counts once, whoever asks and however often."""

    def wake(self, queue: Queue | None = None) -> None:
        """There is something for the pump to do, at this queue if it is given."""
        if queue is not None:
            self._busy[queue] = None
        self._work.wake()

    def hurry(self) -> None:
        """Somebody waits for what has been settled until now."""
        self.vhost.settling.hurry()
        self._work.wake()

    async def run(self) -> None:
        """Until cancelled."""
        # At once: a hop to this task would be part of every confirm.
        self.log.on_commit = self.turn
        while True:
            self.turn()
            await self._work.wait()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to the disk."""
        return self.log.durable_end == self.log.end

    def turn(self) -> None:
        """Whatever there is to do at this moment."""
        if self.log.failure is not None:
            self._tell_failure(self.log.failure)
        now_us, settling = self.clock.now_us(), self.vhost.settling
        durable = settling.durable
        durable_end = self.log.durable_end
        # First: a publisher that waits for its confirm does not wait for what comes of it here as well.
        for publisher in self.vhost.intake.decided(durable_end):
            session = self._publishers.get(publisher.id)
            if session is not None:
                session.confirm()
        self.vhost.committed(durable_end, now_us)
        self.applied_end = min(durable_end, self.carried_from)
        self.stored.wake()
        self._deliver(now_us)
        if self.vhost.has_dead:
            self.died.wake()
        settling.flush(now_us)
        if settling.durable > durable:
            self.settled.wake()

    def _tell_failure(self, reason: str) -> None:
        """Nothing will be confirmed any more: publishers that wait are told so, once."""
        self.settled.wake()
        publishers, self._publishers = self._publishers, {}
        for session in publishers.values():
            session.fail(StoreFailed(reason))

    def _deliver(self, now_us: int) -> None:
        busy, left = self._busy, DELIVERIES_AT_ONCE
        busy.update(self.vhost.intake.arrived())
        while busy and left > 0:
            queue, _ = busy.popitem(last=False)
            by_consumer: dict[Consumer, list[Delivery]] = {}
            deliveries = queue.take(now_us, left)
            left -= max(1, len(deliveries))
            if left <= 0:  # There may be more, after all that wait already.
                busy[queue] = None
            for delivery in deliveries:
                by_consumer.setdefault(delivery.consumer, []).append(delivery)
            for consumer, its_own in by_consumer.items():
                self._sessions[consumer].receive(its_own)
        if busy:
            self.wake()

    async def change(self, wanted: Wanted) -> None:
        """Write changes down, make them so, and return when they are on disk.

        Args:
            wanted: called right before they are made, so that what it has checked still holds;
                again when there was no room. No changes: return when earlier ones are on disk.
        Raises:
            RecordTooLarge: written twice they are more than a segment takes. Nothing has changed.
            StoreFull: nothing has changed.
            StoreFailed, StoreClosed: it is unknown whether anything has.
        """
        async with self.gate.together():
            position = await self._with_room(partial(self._make_so, wanted))
        await self.log.durable(position)

    def tellings_of(self, stream: Stream, cursor: str) -> Tellings:
        """The same for all sessions that there are at a time."""
        return self._tellings.setdefault((stream, cursor), Tellings())

    async def keep_cursor(self, wanted: Wanted, tellings: Tellings, number: int) -> None:
        """As `change`, and nobody who is alone keeps it waiting: cursors are not declared.

        Args:
            number: of the telling; where a later one has been written, it is that one that is kept.
        """

        def news() -> Sequence[Change]:
            return wanted() if number > tellings.written else []

        position = await self._with_room(partial(self._make_so, news))
        tellings.written = max(tellings.written, number)  # Not before there was room for it.
        await self.log.durable(position)

    def _make_so(self, wanted: Wanted) -> int:
        changes = wanted()
        position = self.vhost.change(changes, self.clock.now_us())
        words = {word for word, *_ in changes}
        if words & {STREAM, STREAM_GONE}:
            self.streams_changed.wake()
        if words & {PERMISSION, PERMISSION_GONE}:
            self._permitted.wake()
        return position

    async def extend(self, addition: Addition, check: Callable[[], object]) -> int:
        """Write down and make so all of it, for who is alone in the gate; the log position to be durable
        before an answer. Raises as `change`.

        Args:
            check: called right before: of what others may have changed all the same.
        """

        def extend() -> int:
            check()
            position = self.vhost.extend(addition, self.clock.now_us())
            if addition.streams:
                self.streams_changed.wake()
            if addition.permissions.definitions():
                self._permitted.wake()
            return position

        return await self._with_room(extend)

    async def _with_room(self, change: Callable[[], int]) -> int:
        """Raises RecordTooLarge, and what `change` raises."""
        try:
            position = await self.log.with_room(change)
        except TooLarge as error:
            raise RecordTooLarge(error.size_bytes, error.limit_bytes) from None
        self.wake()
        return position

    async def delete_queue(
        self, queue: Queue, reason: str, *, stays: Callable[[], bool] = lambda: False
    ) -> None:
        """With its messages, dead ones among them; its consumers are told.

        Args:
            stays: asked right before it would go; what it raises ends this.
        """
        queues = self.vhost.registry.queues

        def wanted() -> Sequence[Change]:
            if queues.get(queue.name) is not queue or stays():
                return []
            return [[QUEUE_GONE, queue.name]]

        try:
            await self.change(wanted)
        except StoreError:  # What is in memory ends, whatever the log can take.
            if queue.logged:
                raise
            async with self.gate.together():
                for change in wanted():
                    self.vhost.registry.apply(change)
        finally:
            if queues.get(queue.name) is not queue:
                self.endings.discard(queue)
                for consumer in list(queue.consumers):
                    self._sessions[consumer].cancel(reason)

    async def delete_exclusive(self, lanes: Iterable[int]) -> None:
        """A connection has ended: so do its queues, of which these are the first lanes. Cancelled, those that are
        left end later."""
        owners = self.vhost.registry.owners
        queues = [one for one in map(owners.get, lanes) if isinstance(one, Queue)]
        for queue in queues:
            self.endings.add(queue, "its connection ended", stays=lambda: False)
        for queue in queues:
            await self.endings.end(queue)

    async def consumer_left(self, queue: Queue, *, peeked: bool = False) -> None:
        """What it had is given to others; a queue that was to go with its last consumer goes, unless it only
        looked. Cancelled, it goes later."""
        self.left.wake()
        self.wake(queue)

        def stays() -> bool:
            return self.leaving or not all(one.peeks for one in queue.consumers)

        there = self.vhost.registry.queues.get(queue.name) is queue
        if there and queue.definition.auto_delete and not (peeked or stays()):
            self.endings.add(queue, "its last consumer left", stays=stays)
            await self.endings.end(queue)

    async def purge(self, queue: Queue) -> int:
        """Settle all that is ready, and return how many once that is on disk.

        Raises:
            StoreFull: there is no room to write it down. All of it stays, or, where it takes several
                records, what the last of them would have said.
            StoreFailed, StoreClosed: it is unknown what comes back.
        """
        self.wake()
        if not queue.logged:
            return queue.purge()
        purged = 0
        for lane, end in [(lane, lane.index.end) for lane in queue.lanes]:
            settle = partial(self.vhost.purge, lane, end, self.clock.now_us())
            while count := await self.log.with_room(settle):
                purged += count
        await self.log.durable(self.log.end - 1)
        return purged

    # Sessions

    def attach_publisher(self, publisher: Publisher, session: PublisherSession) -> None:
        """Tell `session` whenever more of what it sent is decided."""
        before = self._publishers.get(publisher.id)
        if before is not None:
            before.replaced()
        self._publishers[publisher.id] = session

    def detach_publisher(self, publisher: Publisher, session: PublisherSession) -> None:
        if self._publishers.get(publisher.id) is session:
            del self._publishers[publisher.id]

    def attach_consumer(self, consumer: Consumer, session: ConsumerSession) -> None:
        """Give `session` what `consumer` gets."""
        self._sessions[consumer] = session

    def detach_consumer(self, consumer: Consumer) -> None:
        del self._sessions[consumer]

    async def until_refused(self, peer: Peer, needs: Sequence[Need]) -> None:
        """Beside a session that would go on when its peer may not any more; returns never.

        Raises:
            AccessRefused: now.
        """
        while True:
            peer.check(needs)
            await self._permitted.wait()

    # Bodies

    async def batches(self, lane: Lane, start: int, end: int) -> list[tuple[Batch, int]] | None:
        """The batches with messages [`start`, `end`) of a lane, as far as they are in one record with the
        first, each with the sequence of its first one there.

        None: the record is damaged or gone, which has been logged and counted; or the lane's queue or
        stream is deleted, and with it the record.
        """
        tried = -1
        while (run := lane.index.find(start)) is not None and not lane.retired:
            if run.position == tried:  # Compaction has not moved it meanwhile.
                self._lose(lane, run)
                break
            tried = run.position
            body = self.vhost.bodies.get(tried) or await self._fetching.body(tried)
            if body is not None:
                with suppress(RemoteProtocolError):  # Whole, but no batches: as good as damaged.
                    return batches_in(body, run.first, start, end)
        return None

    def _lose(self, lane: Lane, run: Run) -> None:
        """What is not settled of it cannot be read."""
        record = lane.id, run.position
        if record in self._unreadable:
            return
        if len(self._unreadable) < UNREADABLE_MAX:
            self._unreadable.add(record)
        count = lane.settled.count_unsettled(run.first, run.first + run.count)
        self.lost += count
        logger.error(
            "%d messages of lane %d cannot be read: log position %d is damaged or gone",
            count, *record,
        )  # fmt: skip

    async def came_us(self, position: int) -> int | None:
        """When the record at this log position came; None: it is damaged or gone."""
        records = await self.log.read(position, 1)
        return next((one.header.time_us for one in records if one.position == position), None)
