"""From what publishers send to records in the log, and from durable records to messages that are ready.

    batches ──> known? ──> routes ──> plan ──append──> pending ──committed──> in their lanes
                  │           │         │
              duplicate    nowhere    the log refuses: the plan is dropped, nothing has changed

All records of one call are appended together, or none is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from mesh.protocol.batch import Batch

from ..errors import DurableError, Malformed, UnknownExchange, Unroutable
from ..log.record import Draft, Kind
from ..protocol.error_codec import describe_error
from ..protocol.parts import Refusal
from ..protocol.properties import Properties, check_published, decode_properties
from ..queues.expiries import expiry_us
from ..queues.latencies import bucket_of
from ..queues.queue import Queue
from ..routing.router import Router
from .bodies import Bodies
from .deadletters import is_cycle
from .groups import BYTES_MAX
from .member import Member
from .plan import Item, LaneTarget, Plan
from .publishers import Publisher
from .routes import cut, routed
from .store import Store, record_bytes

GROUPS_MIN = 16
"""An empty segment has room for this many of the largest groups."""

CheckAccess = Callable[[str], None]
"""Raises AccessRefused if the caller may not write to this exchange."""


class StoredRecord(NamedTuple):
    """A record of messages on its way to the disk."""

    position: int
    targets: Sequence[LaneTarget]
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    size_bytes: int
    """Bytes of all bodies."""
    time_us: int
    expires_us: int
    """0: never."""
    received_bytes: int
    """Bytes of the batches as received."""
    share_bytes: int
    """Bytes of the record, divided by the number of targets."""


@dataclass(slots=True)
class IntakeCounts:
    """Numbers of messages, unless the name says bytes."""

    received: int = 0
    received_bytes: int = 0
    duplicates: int = 0
    dropped: int = 0
    """Routed nowhere, and not mandatory."""
    refused: int = 0
    captured: int = 0
    captured_bytes: int = 0


class Intake:
    """The intake of one vhost."""

    def __init__(
        self, router: Router, member: Callable[[str], Member], bodies: Bodies, store: Store
    ) -> None:
        self._router, self._member, self._bodies, self._store = router, member, bodies, store
        self._pending: deque[StoredRecord] = deque()
        self._decided: deque[tuple[int, Publisher]] = deque()
        self._arrived: dict[Queue, None] = {}
        self.counts = IntakeCounts()
        self.confirms: dict[int, int] = {}
        """Number of message records by latency bucket (see latencies.py); the latency is from the append to
        the pump's turn after the commit."""

    def publish(
        self, publisher: Publisher, batches: Sequence[Batch], check_access: CheckAccess, now_us: int
    ) -> list[Refusal]:
        """Take the batches that a publisher sent, and return the refusals. Everything else is stored, or
        dropped because no queue wants it, once `publisher.confirmed` has passed it.

        Raises:
            Malformed: a batch is not this publisher's, or two batches have the same sequence.
            SequenceLost, TooLarge, StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was taken.
        """
        _check(publisher, batches)
        plan = Plan(
            now_us, group_bytes=self._group_bytes, stops=publisher.stops, refusal=publisher.refusal
        )
        for batch in batches:
            for part in self._new_parts(publisher, batch):
                self._plan(plan, part, check_access)
        return self._decide(publisher, batches, plan, self._carry_out(plan, now_us))

    def _decide(
        self, publisher: Publisher, batches: Sequence[Batch], plan: Plan, position: int | None
    ) -> list[Refusal]:
        """Note the outcomes in the publisher's table; they are decided once log position `position` is
        durable."""
        counts, new = self.counts, 0
        for one in plan.outcomes():
            first, end = one.first, one.end
            new += end - first
            if one.stored:
                publisher.note_stored(first, end)
            else:
                publisher.note_refused(end)
        # Counted only here: a part that is not decided, because the log has no room, comes again.
        for batch in batches:
            counts.received += batch.count
            counts.received_bytes += batch.size_bytes
            counts.duplicates += batch.count
        counts.duplicates -= new
        # Without its traceback, whose frames hold objects: the refusal is kept for a while.
        if plan.refusal is not None:
            publisher.refusal = plan.refusal.with_traceback(None)
        publisher.note_decided(position, batches[-1].next_sequence if batches else 0)
        if publisher.waiting:
            self._decided.append((publisher.waiting[-1][0], publisher))
        return [_refusal(item) for item in plan.items if item.error is not None]

    def refuse(
        self, publisher: Publisher, batches: Sequence[Batch], error: DurableError
    ) -> list[Refusal]:
        """Refuse everything that has not been stored before; it may be sent again, and is then tried again.

        Raises:
            Malformed, SequenceLost: as `publish` does.
        """
        _check(publisher, batches)
        plan = Plan(0, stops=publisher.stops, refusal=publisher.refusal)
        for batch in batches:
            for part in self._new_parts(publisher, batch):
                plan.refuse(part, error)
        return self._decide(publisher, batches, plan, self._carry_out(plan, 0))

    def forward(
        self, letters: Sequence[tuple[Batch, Properties]], settle: Callable[[int], list[Draft]],
        now_us: int,
    ) -> int | None:  # fmt: skip
        """Publish dead letters and settle the originals in one append.

        Args:
            settle: called with the number of records of letters before them; returns the records that
                settle the originals.
        Returns:
            The last log position of the append; None if nothing was appended.
        Raises:
            TooLarge, Malformed, StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was done.
        """
        plan = Plan(now_us, group_bytes=self._group_bytes)
        for batch, properties in letters:
            try:
                self._route(plan, batch, properties)
            except UnknownExchange:  # Dropped, as in RabbitMQ.
                plan.drop(batch)
        return self._carry_out(plan, now_us, drafts_after=settle)

    def capture(
        self, batch: Batch, members: Sequence[Member], gaps: Sequence[Draft], now_us: int
    ) -> None:
        """Store messages published on the mesh, behind the records of what is missing before them.

        Raises:
            TooLarge, StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was done.
        """
        plan = Plan(now_us, Kind.CAPTURE)
        plan.store(batch, members, 0, None)
        self._carry_out(plan, now_us, drafts_before=gaps)
        self.counts.captured += batch.count
        self.counts.captured_bytes += batch.size_bytes

    def take_decided(self, end: int) -> list[Publisher]:
        """All log positions before `end` are durable. Return the publishers of which more is confirmed with
        that."""
        decided = self._decided
        confirmed_by_id: dict[bytes, Publisher] = {}
        while decided and decided[0][0] < end:
            publisher = decided.popleft()[1]
            if publisher.committed(end):
                confirmed_by_id[publisher.id] = publisher
        return list(confirmed_by_id.values())

    def committed(self, end: int, now_us: int) -> None:
        """All log positions before `end` are durable. Put the messages stored there into their lanes."""
        pending = self._pending
        while pending and pending[0].position < end:
            stored = _without_deleted(pending.popleft())
            bucket = bucket_of(now_us - stored.time_us)
            self.confirms[bucket] = self.confirms.get(bucket, 0) + 1
            for member, _, _ in stored.targets:
                member.counts.confirm(bucket, stored.received_bytes, stored.share_bytes)
            times = len(stored.targets)
            size_bytes = times * record_bytes(stored.count, stored.size_bytes)
            self._store.refer(stored.position, times, size_bytes)
            self._arrive(stored, now_us)

    @property
    def _group_bytes(self) -> int:
        """Bytes of batches that may share a record: a small part of a segment, because a record that does not
        fit at the end of a segment leaves that space empty."""
        return min(BYTES_MAX, self._store.append_bytes_max // GROUPS_MIN)

    def _new_parts(self, publisher: Publisher, batch: Batch) -> Sequence[Batch]:
        """Return the parts of a batch that have not been stored before. Raises SequenceLost."""
        if batch.base_sequence >= publisher.next:
            return (batch,)
        known = publisher.known_ranges(batch.base_sequence, batch.next_sequence)
        return [cut(batch, first, end) for first, end, stored in known if not stored]

    def _plan(self, plan: Plan, batch: Batch, check_access: CheckAccess) -> None:
        properties = decode_properties(batch.shared_headers)
        try:
            check_published(batch.topic, properties)
            check_access(properties.exchange)
            self._router.check_publish(properties.exchange)
            self._route(plan, batch, properties)
        except Malformed:
            raise
        except DurableError as error:
            plan.refuse(batch, error)

    def _route(self, plan: Plan, batch: Batch, properties: Properties) -> None:
        for part, names in routed(self._router, batch, properties):
            if properties.deaths:
                names = tuple(name for name in names if not is_cycle(name, properties.deaths))
            if names:
                members = [self._member(name) for name in names]
                if self._bodies.is_full and not all(one.logged for one in members):
                    plan.refuse(part, self._bodies.full_error())
                else:
                    plan.store(part, members, properties.priority, properties.ttl_us)
            elif properties.mandatory:
                plan.refuse(part, Unroutable(properties.exchange, part.topic))
            else:
                plan.drop(part)

    def _carry_out(
        self, plan: Plan, now_us: int, drafts_before: Sequence[Draft] = (),
        drafts_after: Callable[[int], list[Draft]] = lambda _: [],
    ) -> int | None:  # fmt: skip
        """Append the plan's records, then account for them. Return the last log position, if there is one."""
        planned = plan.drafts()
        drafts = [*drafts_before, *planned, *drafts_after(len(planned))]
        positions = self._store.append_nowait(drafts) if drafts else range(0)
        placed = zip(positions[len(drafts_before) :][: len(planned)], planned, strict=True)
        for item in plan.items:
            if not item.stored:
                self.counts.refused += item.count if item.error else 0
                self.counts.dropped += 0 if item.error else item.count
                continue
            for member, lane, first in (*item.logged, *item.held):
                sequence = member.announce(lane, item.count, item.bodies_bytes)
                assert sequence == first, "the plan gave the sequences that the lane gives"
            if item.logged:
                position, draft = next(placed)
                self._bodies.keep(position, draft.body)
                stored = _stored_record(item, position, item.logged, now_us, draft.size_bytes)
                self._pending.append(stored)
            if item.held:
                position = self._bodies.hold(item.batches[0].view(), len(item.held))
                self._arrive(_stored_record(item, position, item.held, now_us), now_us)
        return positions[-1] if positions else None

    @property
    def has_arrived(self) -> bool:
        """Whether `take_arrived` would return any queue."""
        return bool(self._arrived)

    def take_arrived(self) -> dict[Queue, None]:
        """Return the queues that got messages since the last call, in order."""
        arrived, self._arrived = self._arrived, {}
        return arrived

    def _arrive(self, stored: StoredRecord, now_us: int) -> None:
        for member, lane, first in stored.targets:
            if isinstance(member, Queue):
                self._arrived[member] = None
            member.enqueue(
                lane, first, stored.count, stored.position, stored.size_bytes, stored.time_us,
                stored.expires_us, now_us=now_us,
            )  # fmt: skip


def _without_deleted(stored: StoredRecord) -> StoredRecord:
    """Return it without targets in members that were deleted while the record was on its way to the disk."""
    if any(one.lane.retired for one in stored.targets):
        targets = tuple(one for one in stored.targets if not one.lane.retired)
        return stored._replace(targets=targets)
    return stored


def _check(publisher: Publisher, batches: Sequence[Batch]) -> None:
    """Raises Malformed if a batch is not this publisher's, or if two batches have the same sequence."""
    for batch in batches:
        if batch.publisher != publisher.id or batch.epoch != publisher.epoch:
            raise Malformed("a batch of another publisher")
    if len(batches) == 1:
        return
    # New messages are selected before any is noted as stored, so a sequence in two batches would be stored
    # twice. Batches in any order are fine.
    spans = sorted((batch.base_sequence, batch.next_sequence) for batch in batches)
    for (_, end), (first, _) in pairwise(spans):
        if first < end:
            raise Malformed(f"sequence {first} is in two batches of one part")


def _stored_record(
    item: Item, position: int, targets: Sequence[LaneTarget], now_us: int, record_bytes: int = 0
) -> StoredRecord:
    expires_us = 0 if item.ttl_us is None else expiry_us(now_us, item.ttl_us)
    return StoredRecord(
        position, targets, item.count, item.bodies_bytes, now_us, expires_us, item.received_bytes,
        record_bytes // len(targets),
    )  # fmt: skip


def _refusal(item: Item) -> Refusal:
    assert item.error is not None
    code, details = describe_error(item.error)
    return Refusal(item.first, item.count, code, details)
