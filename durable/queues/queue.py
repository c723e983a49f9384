"""One queue: a lane per priority, its consumers, and everything its definition asks for.

    announce ──(log)──> enqueue ──> ready ──take──> unacked ──settle──> settled, ready again, or dead
                                      └── expired, over max_length ──> settled, or dead

Dead messages of a queue with a dead letter exchange are in the journal, neither ready nor unacked, until the
vhost calls `settle_dead`; without such an exchange they are settled at once. As in RabbitMQ, `max_length` limits
ready and announced messages and is applied when messages are enqueued or come back, and messages expire only
at the head of a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ..definitions import REJECT_PUBLISH, QueueDefinition
from ..errors import QueueFull
from .consumers import Consumer, Consumers
from .counts import Counts
from .journal import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, UNREADABLE, DeadRange
from .lane import UNLIMITED, Lane

ACK, REQUEUE, REJECT = "ack", "requeue", "reject"
RELEASE = "release"
"""Made ready again as if never delivered: this does not count as a return."""
LOST = "lost"
"""It cannot be read any more: it is settled, and counted as dropped."""


class Delivery(NamedTuple):
    """Messages [first, first + count), all of one run, for `consumer`; their tags begin with `tag`."""

    consumer: Consumer
    tag: int
    lane: Lane
    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    returned: int
    """How often each of them came back; they are redelivered if this is not 0."""


_LaneSpan = tuple[Lane, int, int]
"""Messages [start, end) of a lane, of any number of runs."""


class Queue:
    __slots__ = (
        "_announced", "_announced_bytes", "_ttl_us", "_used_us", "consumers", "counts",
        "dead_lettered", "definition", "died", "lanes", "may_expire", "name", "unacked",
    )  # fmt: skip

    def __init__(self, definition: QueueDefinition, lanes: Sequence[Lane]) -> None:
        self.definition, self.name = definition, definition.name
        assert len(lanes) == definition.max_priority + 1, "a lane for each priority"
        self.lanes = tuple(lanes)
        """`lanes[p]` holds the messages of priority p."""
        self.consumers = Consumers(single_active=definition.single_active_consumer)
        self.counts = Counts()
        self.unacked = 0
        self.died = self.dead_lettered = 0
        """`died`: messages that were to be dead-lettered, since the start; `dead_lettered`: those that have been."""
        self._announced = self._announced_bytes = 0  # Appended to the log, but not durable yet.
        self._ttl_us = None if definition.ttl_s is None else round(definition.ttl_s * 1e6)
        self.may_expire = self._ttl_us is not None
        """Whether any of its messages may expire."""
        self._used_us = 0

    @property
    def ready(self) -> int:
        return sum(lane.ready for lane in self.lanes)

    @property
    def ready_bytes(self) -> int:
        return sum(lane.ready_bytes for lane in self.lanes)

    @property
    def dead(self) -> int:
        """Messages that wait to be dead-lettered."""
        return self.died - self.dead_lettered

    @property
    def unsettled(self) -> int:
        """Messages that would be lost with the queue: ready, unacked, dead, or not durable yet."""
        return self.ready + self.unacked + self.dead + self._announced

    @property
    def size_bytes(self) -> int:
        """Bytes of all messages that are not settled."""
        return sum(lane.size_bytes for lane in self.lanes)

    def oldest_us(self) -> int | None:
        """When the oldest unsettled message came, as exactly as is known; None if there is none."""
        return min(
            (at for lane in self.lanes if (at := lane.oldest_us()) is not None), default=None
        )

    @property
    def logged(self) -> bool:
        """Whether its messages are in the log; otherwise they are held in memory and end with the broker."""
        return not self.definition.transient

    def full_error(self) -> QueueFull:
        """Return the error for a publish that `accepts` refuses."""
        limits = self.definition
        return QueueFull(self.name, limits.max_length, limits.max_length_bytes)

    def lane_for(self, priority: int) -> Lane:
        return self.lanes[min(max(0, priority), len(self.lanes) - 1)]

    # Messages arrive.

    def accepts(self, count: int, size_bytes: int) -> bool:
        """Return whether there is room for these messages; False only with `overflow=reject-publish`."""
        definition = self.definition
        if definition.overflow != REJECT_PUBLISH:
            return True
        most, most_bytes = definition.max_length, definition.max_length_bytes
        if most is not None and self.ready + self._announced + count > most:
            return False
        size_bytes += self._announced_bytes
        return most_bytes is None or self.ready_bytes + size_bytes <= most_bytes

    def announce(self, lane: Lane, count: int, size_bytes: int) -> int:
        """Announce messages that were appended to the log, and return the first one's sequence. `enqueue` must
        follow, in the same order."""
        first = lane.next
        lane.next = first + count
        self._announced += count
        self._announced_bytes += size_bytes
        return first

    def enqueue(
        self, lane: Lane, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0, *, now_us: int,
    ) -> None:  # fmt: skip
        """Make durable messages ready; then drop the oldest, if there are too many. Messages that were not announced
        come from recovery, and nothing is dropped for them."""
        lane.enqueue(first, count, position, size_bytes, time_us, expires_us)
        self.counts.published += count
        if expires_us:
            self.may_expire = True
        if self._announced:
            self._announced -= count
            self._announced_bytes -= size_bytes
            self.shorten(now_us)

    def shorten(self, now_us: int) -> None:
        """Drop the oldest ready messages over the limits. Called when more have come, or when messages came back that
        consumers had before the start."""
        if self._drops_head:
            if self.may_expire:
                self.expire(now_us)
            self._drop_head()

    @property
    def _drops_head(self) -> bool:
        """Whether the oldest messages are dropped to make room."""
        definition = self.definition
        limited = definition.max_length is not None or definition.max_length_bytes is not None
        return limited and definition.overflow != REJECT_PUBLISH

    def _drop_head(self) -> None:
        """Drop the oldest messages of the lowest priority until the ready ones are within the limits."""
        most, most_bytes = self.definition.max_length, self.definition.max_length_bytes
        over = 0 if most is None else max(0, self.ready - most)
        over_bytes = 0 if most_bytes is None else max(0, self.ready_bytes - most_bytes)
        for lane in self.lanes:
            while over > 0 or over_bytes > 0:
                head = lane.head()
                if head is None:
                    break
                count = over
                if over_bytes > 0:
                    count = max(over, head.run.fitting(head.first, over_bytes - 1) + 1)
                dropped = lane.take(count)
                assert dropped is not None, "a lane with a head gives some"
                self._dead_letter(lane, dropped.first, dropped.first + dropped.count, MAXLEN)
                over, over_bytes = over - dropped.count, over_bytes - dropped.size_bytes

    # Consumers.

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer. Raises QueueInUse if there are others, and it or one of them is exclusive."""
        self.consumers.add(self.name, consumer)

    def unsubscribe(self, consumer: Consumer, now_us: int, outcome: str = REQUEUE) -> None:
        """Remove a consumer. Its unacked messages get this outcome; by default they come back, in their place."""
        self.consumers.remove(consumer)
        self.settle(consumer, 0, consumer.next_tag, outcome)
        self.note_use(now_us)

    def take(self, now_us: int, deliveries_max: int = UNLIMITED) -> list[Delivery]:
        """Deliver all that consumers have credit for, in at most `deliveries_max` slices of runs. If there are few
        messages, each waiting consumer gets some."""
        deliveries: list[Delivery] = []
        share = self.consumers.share(self.ready)
        while len(deliveries) < deliveries_max:
            if self.may_expire:
                self.expire(now_us)
            if (lane := self._ready_lane()) is None or (turn := self.consumers.next()) is None:
                break
            consumer, count, size_bytes = turn
            deliveries.append(self._deliver(lane, consumer, min(count, share), size_bytes))
        return deliveries

    def _ready_lane(self) -> Lane | None:
        for lane in reversed(self.lanes):
            if lane.ready:
                return lane
        return None

    def _deliver(self, lane: Lane, consumer: Consumer, count: int, size_bytes: int) -> Delivery:
        got = lane.take(count, size_bytes)
        assert got is not None, "a lane with ready messages gives some"
        run, first, count, returned, size = got
        tag = consumer.add(lane, first, count, run, size)
        self.counts.delivered += count
        self.unacked += count
        return Delivery(consumer, tag, lane, first, count, returned)

    def settle(self, consumer: Consumer, start_tag: int, end_tag: int, outcome: str) -> int:
        """Give these messages an outcome; return how many were unacked. Unknown and settled tags are skipped."""
        removed = consumer.remove(start_tag, end_tag)
        spans = _joined((one.lane, one.first, one.first + one.count) for one in removed)
        count = sum(end - start for _, start, end in spans)
        self.unacked -= count
        if outcome == ACK:
            self.counts.acked += count
            for lane, start, end in spans:
                lane.settle(start, end)
        elif outcome == REJECT:
            for lane, start, end in spans:
                self._dead_letter(lane, start, end, REJECTED)
        elif outcome == LOST:
            for lane, start, end in spans:
                self.counts.drop(UNREADABLE, end - start)
                lane.settle(start, end)
        else:
            assert outcome in (REQUEUE, RELEASE), f"impossible outcome {outcome!r}"
            counted = outcome == REQUEUE
            _requeue(self._within_limit(spans) if counted else spans, counted=counted)
            if self._drops_head:
                self._drop_head()
        return count

    def _within_limit(self, spans: list[_LaneSpan]) -> list[_LaneSpan]:
        """Return the spans that may come back once more; dead-letter the others."""
        limit = self.definition.delivery_limit
        if limit is None:
            return spans
        within: list[_LaneSpan] = []
        for lane, start, end in spans:
            for low, high, times in list(lane.returns_between(start, end)):
                if times + 1 > limit:
                    self._dead_letter(lane, low, high, DELIVERY_LIMIT)
                else:
                    within.append((lane, low, high))
        return within

    # Messages leave.

    def _dead_letter(self, lane: Lane, start: int, end: int, reason: str) -> None:
        """Dead-letter messages that are neither ready nor unacked any more; without an exchange for that, drop them."""
        if self.definition.dead_letter_exchange is None:
            self.counts.drop(reason, end - start)
            lane.settle(start, end)
        else:
            self.died += end - start
            lane.journal.note_dead(self.name, lane.id, start, end, reason)

    def settle_dead(self, dead: DeadRange) -> None:
        """Settle dead-lettered messages. The dead letters are in the same append as their settlement, so that is not
        journalled."""
        self.dead_lettered += dead.end - dead.start
        self._lane(dead.lane).settle(dead.start, dead.end, recorded=True)

    def _lane(self, lane_id: int) -> Lane:
        return next(lane for lane in self.lanes if lane.id == lane_id)

    def expire(self, now_us: int) -> int:
        """Dead-letter the messages that have expired; return how many."""
        count = 0
        for lane in self.lanes:
            for start, end in lane.expire(now_us, self._ttl_us):
                self._dead_letter(lane, start, end, EXPIRED)
                count += end - start
        return count

    def purge(self) -> int:
        """Settle all that is ready; return how many messages."""
        count = 0
        for lane in self.lanes:
            for start, end in lane.ready_ranges():
                count += lane.settle(start, end)
        return count

    # Idleness

    def note_use(self, now_us: int) -> None:
        """Note a use: the queue was declared again, asked for a message, or left by a consumer."""
        self._used_us = now_us

    def idle_since_us(self) -> int | None:
        """Since when nobody has used it; None while it has consumers."""
        return None if self.consumers else self._used_us

    # Recovery: lanes are filled in log order; with a checkpoint, from that first.

    def end_recovery(self, now_us: int) -> None:
        """End recovery: all of the log is read, and what is not settled is ready. The time of idleness begins anew."""
        self.may_expire = self.may_expire or any(lane.may_expire for lane in self.lanes)
        self.note_use(now_us)


def _joined(spans: Iterable[_LaneSpan]) -> list[_LaneSpan]:
    """Join spans that follow each other: messages stored alone have a span each, although they are neighbours."""
    joined: list[_LaneSpan] = []
    lane, start, end = None, 0, 0
    for its_lane, first, its_end in spans:
        if its_lane is not lane or first != end:
            if lane is not None:
                joined.append((lane, start, end))
            lane, start = its_lane, first
        end = its_end
    if lane is not None:
        joined.append((lane, start, end))
    return joined


def _requeue(spans: list[_LaneSpan], *, counted: bool) -> None:
    """Make messages ready again. Spans are sorted by place before they are joined: in the order of tags, a message
    delivered for the second time may stand between neighbours."""
    in_order = _joined(sorted(spans, key=_place))
    for lane, group in groupby(in_order, itemgetter(0)):
        lane.requeue([(start, end) for _, start, end in group], counted=counted)


def _place(span: _LaneSpan) -> tuple[int, int]:
    lane, start, _ = span
    return lane.id, start
