"""A model of a queue as one list of messages: slow, and obviously right."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from durable.definitions import DROP_HEAD, QueueDefinition
from durable.queues.arrivals import Arrivals
from durable.queues.block import Block, _Constant
from durable.queues.consumers import Consumer
from durable.queues.index import Index
from durable.queues.lane import Lane
from durable.queues.runs import Records, Run


def positions_of(released: Iterable[Records | Block]) -> list[int]:
    """Return the log positions of all these records."""
    each = [(one,) if isinstance(one, Records) else one.records() for one in released]
    return [at for some in each for records in some for at in records.positions]


def arrivals_of(runs: list[Run]) -> Arrivals:
    """Return arrivals at time 0 that never expire."""
    firsts, counts, positions, sizes = map(list, zip(*runs, strict=True))
    nothing = [0] * len(runs)
    alike = len({*counts}) == len({*sizes}) == 1
    return Arrivals(array("Q", firsts), counts, array("Q", positions), sizes, nothing, None, alike)


def memory_bytes(index: Index) -> int:
    """Return the memory of an index, without columns that repeat one number, as these are shared."""
    parts = [*index._blocks, index._tail]
    columns = [
        one
        for part in parts
        for one in (part.columns() if isinstance(part, Block) else (part.firsts, part.rest))
        if type(one) is not _Constant
    ]
    return sum(map(sys.getsizeof, (index, index._blocks, *parts, *columns)))


def encoded(lane: Lane) -> tuple[bytes, bytes]:
    """Return a lane as a checkpoint stores it."""
    pieces, settled = lane.encode()
    return b"".join(pieces), settled


READY, UNACKED, DYING, SETTLED = "ready", "unacked", "dying", "settled"


@dataclass(eq=False)
class Message:
    """One durable message; `lane` is its priority."""

    lane: int
    sequence: int
    run: Run
    time_us: int
    expires_us: int
    state: str = READY
    consumer: Consumer | None = None
    tag: int = -1
    returned: int = 0
    reason: str = ""
    settled_in_log: bool = False
    returned_in_log: int = 0

    @property
    def size_bytes(self) -> int:
        return self.run.size_of(self.sequence, self.sequence + 1)


@dataclass
class Model:
    """All messages that ever were in the queue, in the order of delivery."""

    definition: QueueDefinition
    messages: list[Message] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    """Since the queue was declared, by reason: messages dropped without a dead letter."""

    def add(self, lane: int, run: Run, time_us: int, expires_us: int) -> None:
        for sequence in range(run.first, run.first + run.count):
            self.messages.append(Message(lane, sequence, run, time_us, expires_us))
        self.messages.sort(key=lambda one: (-one.lane, one.sequence))

    def those(self, state: str) -> list[Message]:
        return [one for one in self.messages if one.state == state]

    def ready_bytes(self) -> int:
        return sum(one.size_bytes for one in self.those(READY))

    def unacked_of(self, consumer: Consumer) -> list[Message]:
        return [one for one in self.those(UNACKED) if one.consumer is consumer]

    def has_credit(self, consumer: Consumer) -> bool:
        held = self.unacked_of(consumer)
        size = sum(one.size_bytes for one in held)
        return (not consumer.prefetch or len(held) < consumer.prefetch) and (
            not consumer.prefetch_bytes or size < consumer.prefetch_bytes
        )

    def goes(self, message: Message, reason: str) -> None:
        """A message leaves the queue other than by an ack."""
        message.reason, message.consumer = reason, None
        dead_letters = self.definition.dead_letter_exchange is not None
        message.state = DYING if dead_letters else SETTLED
        if not dead_letters:
            self.dropped[reason] += 1

    def expire(self, now_us: int) -> int:
        """Expire messages; only the oldest of a lane may expire, then the next one is the oldest."""
        count = 0
        for lane in range(self.definition.max_priority + 1):
            while (head := self._head(lane)) and self.expiry_us(head) <= now_us:
                self.goes(head, "expired")
                count += 1
        return count

    def _head(self, lane: int) -> Message | None:
        return next((one for one in self.those(READY) if one.lane == lane), None)

    def expiry_us(self, message: Message) -> float:
        own = message.expires_us or float("inf")
        ttl_s = self.definition.ttl_s
        return own if ttl_s is None else min(own, message.time_us + ttl_s * 1e6)

    def drop_head(self) -> None:
        """Drop the oldest messages until the limits hold, if that is the overflow policy."""
        if self.definition.overflow != DROP_HEAD:
            return
        most = self.definition.max_length
        most_bytes = self.definition.max_length_bytes
        while (most is not None and len(self.those(READY)) > most) or (
            most_bytes is not None and self.ready_bytes() > most_bytes
        ):
            lowest = min(one.lane for one in self.those(READY))
            head = self._head(lowest)
            assert head is not None
            self.goes(head, "maxlen")

    def come_back(self, message: Message) -> None:
        """A message is requeued, or its consumer has gone."""
        limit = self.definition.delivery_limit
        if limit is not None and message.returned + 1 > limit:
            self.goes(message, "delivery_limit")
        else:
            self.release(message)
            message.returned += 1

    def release(self, message: Message) -> None:
        """A message becomes ready again without being counted as returned."""
        message.state, message.consumer = READY, None

    def crash(self) -> None:
        """Forget everything that is not in the log."""
        for one in self.messages:
            one.state = SETTLED if one.settled_in_log else READY
            one.consumer, one.returned = None, one.returned_in_log

    def find(self, lane: Lane, lanes: tuple[Lane, ...], sequence: int) -> Message:
        number = lanes.index(lane)
        return next(one for one in self.messages if (one.lane, one.sequence) == (number, sequence))
