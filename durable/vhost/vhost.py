"""One vhost: queues, streams, exchanges and publishers over one log. The log is its only door to I/O.

    publish ──> append ... committed ──> ready ──take──> deliveries ... settle ──> flush ──> append

The shell calls the vhost or its parts (`intake`, `settling`), then asks `intake` which queues have got
messages, and so may have something to deliver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from mesh.protocol.batch import Batch

from ..errors import StoreFull
from ..log.bodies import (
    RANGE,
    Missed,
    encode_acks,
    encode_dead_lettered,
    encode_definitions,
    gap_draft,
)
from ..log.record import Draft, Kind
from ..queues.journal import DeadRange
from ..queues.lane import Lane
from ..queues.queue import Queue
from .addition import Addition
from .bodies import Bodies
from .changes import CURSOR, QUEUE, Change
from .deadletters import dead_letter
from .gaps import StreamGap
from .groups import part_of
from .intake import Intake
from .publishers import Publishers
from .registry import Registry
from .settling import Settling
from .snapshot import Snapshot
from .store import Store, append_twice
from .stream import Stream

DEAD_LETTERED_BYTES = Draft(Kind.ACKS, encode_dead_lettered(0, 0, 1, 0)).size_bytes


class Vhost:
    """One vhost, made from what recovery has filled."""

    def __init__(
        self, name: str, registry: Registry, publishers: Publishers, store: Store, bodies: Bodies
    ) -> None:
        self.name, self.registry, self.publishers, self.bodies = name, registry, publishers, bodies
        self._store = store
        self._forwarding: deque[tuple[int, Queue, DeadRange]] = deque()
        """Log positions of dead letters, with their originals, which count as settled only when the letters
        are durable. Otherwise a snapshot or checkpoint would have the settlement, and might survive a
        power cut that the letters do not."""
        self.intake = Intake(registry.router, registry.member, bodies, store)
        self.settling = Settling(
            registry.journal, registry.held_journal, registry.owners, bodies, store
        )

    def change(self, changes: Sequence[Change], now_us: int) -> int:
        """Write changes to the log and apply them; return the log position to be durable before the answer.

        Without changes, that is the last position in the log: whatever makes the change unnecessary may
        not be durable yet. Transient changes are not logged and need not wait.

        Raises:
            TooLarge: a segment cannot take them twice. Nothing has changed.
            StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing has changed.
        """
        if not changes:
            position = self._store.end - 1
        elif logged := self.registry.logged_changes(changes):
            position = self._write(logged, now_us)
        else:
            position = self._store.durable_end - 1
        for change in changes:
            self.registry.apply(change)
            if change[0] == QUEUE:  # The time until an unused queue expires begins.
                self.registry.queue(change[-1]["name"]).note_use(now_us)
        return position

    def _write(self, changes: Sequence[Change], now_us: int) -> int:
        """Return the log position that has to be durable for these changes."""
        # Readers move their cursors again and again, and that frees no space. So cursors take nothing from
        # the reserve of a full disk, and have no second copy.
        cursors = all(word == CURSOR for word, *_ in changes)
        body = encode_definitions(changes)
        draft = Draft(Kind.DEFINITIONS, body, (), now_us, patient=cursors)
        if cursors:
            return self._store.append_nowait([draft])[-1]
        return append_twice(self._store, [draft])[-1]

    def extend(self, addition: Addition, now_us: int) -> int:
        """Do what `change` does, for a whole addition.

        One that is not logged waits as well: what was imported together with it and existed already may not be
        durable yet.
        """
        position = self._store.end - 1
        if body := addition.encode():
            draft = Draft(Kind.DEFINITIONS, body, (), now_us)
            position = append_twice(self._store, [draft])[-1]
        addition.apply(now_us)
        return position

    def capture(self, batch: Batch, lost: int, now_us: int) -> None:
        """Store a batch published on the mesh; `lost` messages are missing right before it.

        Raises:
            TooLarge: more than a segment can take. Nothing was done.
            StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was done.
        """
        streams = self.capturing_streams(batch.topic)
        if not streams:
            return
        first = batch.base_sequence - lost
        missed = Missed(batch.publisher, batch.epoch, batch.topic, first, lost)
        gaps = [StreamGap(one.lane.id, one.lane.next, missed) for one in streams] if lost else []
        drafts = [gap_draft(missed, one.lane, one.offset, now_us) for one in gaps]
        self.intake.capture(batch, streams, drafts, now_us)
        for gap in gaps:
            self.registry.gaps.note(gap)

    def capturing_streams(self, topic: str) -> list[Stream]:
        """Return the streams that capture this topic."""
        return sorted(set(self.registry.captures.match(topic)), key=_name)

    def record_gap(self, stream: Stream, missed: Missed, now_us: int) -> None:
        """Record a gap: messages of a stream could not be stored. Raises what `capture` raises."""
        gap = StreamGap(stream.lane.id, stream.lane.next, missed)
        self._store.append_nowait([gap_draft(missed, gap.lane, gap.offset, now_us)])
        self.registry.gaps.note(gap)

    def committed(self, end: int, now_us: int) -> None:
        """All log positions before `end` are durable: what was stored there has arrived."""
        while self._forwarding and self._forwarding[0][0] < end:
            _, queue, dead = self._forwarding.popleft()
            queue.settle_dead(dead)
        self.settling.committed(end)
        self.intake.committed(end, now_us)

    @property
    def has_dead(self) -> bool:
        """Whether there are messages to be dead-lettered."""
        return bool(self.registry.journal.dead or self.registry.held_journal.dead)

    def take_dead(self) -> list[DeadRange]:
        """Return the messages to be dead-lettered; call `forward_dead` for each."""
        return self.registry.journal.take_dead() + self.registry.held_journal.take_dead()

    def forward_dead(
        self,
        dead: DeadRange,
        batches: Iterable[tuple[Batch, int]],
        now_us: int,
        *,
        brief: bool = False,
    ) -> None:
        """Give dead letters their new address and settle the originals, in one append.

        Args:
            batches: those with the dead messages, each with the lane's sequence of its first message.
            brief: see `dead_letter`.
        Raises:
            TooLarge: with their histories, the letters are more than a segment can take. Nothing was done.
            Malformed: a letter has invalid properties or headers. Nothing was done.
            StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was done.
        """
        queue = self.registry.queue(dead.queue)
        definition = queue.definition
        parts = [
            part_of(batch, first, dead.start, dead.end)
            for batch, first in batches
            if first < dead.end and dead.start < first + batch.count
        ]
        letters = [dead_letter(one, dead, definition, now_us, brief=brief) for one in parts]

        def settle(copies: int) -> list[Draft]:
            body = encode_dead_lettered(dead.lane, dead.start, dead.end, copies)
            return [Draft(Kind.ACKS, body, (), now_us)] if queue.logged else []

        position = self.intake.forward(letters, settle, now_us)
        if not queue.logged:
            queue.settle_dead(dead)
            return
        assert position is not None, "the log has the settlement"
        self.settling.note_written(dead.lane, DEAD_LETTERED_BYTES)
        self._forwarding.append((position, queue, dead))

    def purge(self, lane: Lane, end: int, now_us: int) -> int:
        """Settle ready messages before `end` in a logged lane, at most as many as one record can say; return
        how many.

        Raises:
            StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was settled.
        """
        ranges = lane.ready_ranges(end)[: self.settling.record_bytes_max // RANGE.size]
        if ranges:
            body = encode_acks({lane.id: ranges})
            draft = Draft(Kind.ACKS, body, (), now_us)
            self._store.append_nowait([draft])
            self.settling.note_written(lane.id, draft.size_bytes)
        return sum(lane.settle(low, high, recorded=True) for low, high in ranges)

    def snapshot(self, start: int = 0, *, complete: bool = False) -> Snapshot:
        """Return a snapshot that has yet to be encoded, see Snapshot. Until it is appended, nothing may be
        declared.

        Args:
            start: records before this log position are durable and have been applied. 0: nothing is going
                to be freed because of this snapshot.
            complete: it leaves out nothing, because no checkpoint is written with it. If the flush found the
                disk full, it holds what the flush would have logged; call `settling.note_covered` when appended.
        """
        return Snapshot(self.registry, self.publishers, start, complete=complete)

    def drafts(self, snapshot: Snapshot, now_us: int, *, full: bool = False) -> list[Draft]:
        """Return the records of a snapshot. Call it right after a flush, and append them twice.

        Args:
            full: the disk is full.
        Raises:
            StoreBusy, StoreFull, StoreFailed, StoreClosed: the flush was refused. The snapshot would count
                returns that are not in the log yet, and their record would count them again.
        """
        refusal = self.settling.refusal
        if refusal is not None and not (snapshot.complete and isinstance(refusal, StoreFull)):
            raise refusal
        return snapshot.drafts(now_us, full=full)


def _name(stream: Stream) -> str:
    return stream.name
