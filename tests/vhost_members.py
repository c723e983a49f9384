"""A model of queues, streams and publishers as plain lists: slow, and obviously right.

Everything that the log says of each is kept with its log position, so that it is known what a crash leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from durable.definitions import REJECT_PUBLISH, QueueDefinition, StreamDefinition
from durable.protocol.properties import Death

READY, UNACKED, DYING, GONE = "ready", "unacked", "dying", "gone"
EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"


class Published(NamedTuple):
    payload: bytes
    key: str
    exchange: str = ""
    priority: int = 0
    ttl_us: int | None = None
    deaths: tuple[Death, ...] = ()
    origin: tuple[bytes, int, int] | None = None
    """Its publisher's name, epoch and sequence."""
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    """Keys that are removed when it is stored."""

    def died(self, definition: QueueDefinition, reason: str, now_us: int) -> Published:
        """Return its dead letter.

        Deaths in the same queue for the same reason are one entry with a count; the latest entry is first.
        """
        key = definition.dead_letter_routing_key
        same = [one for one in self.deaths if one[:2] == (definition.name, reason)]
        others = [one for one in self.deaths if one not in same]
        now = Death(definition.name, reason, 0, self.exchange, (self.key, *self.cc), now_us)
        death = same[0] if same else now
        return self._replace(
            key=self.key if key is None else key, exchange=definition.dead_letter_exchange or "",
            ttl_us=None, cc=self.cc if key is None else (), bcc=(), deaths=(death._replace(count=death.count + 1), *others),
        )  # fmt: skip

    def comes_back_to(self, queue: str) -> bool:
        """Return whether it comes back to this queue by expiry and limits alone: not rejected since it was there last."""
        for one in self.deaths:
            if one.reason == REJECTED:
                return False
            if one.queue == queue:
                return True
        return False


@dataclass(eq=False, repr=False)
class Message:
    what: Published
    priority: int
    came_us: int
    record: object
    """The same object for messages that were stored together."""
    at: int
    """Its place among them."""
    state: str = READY
    returned: int = 0
    reason: str = ""
    consumer: Any = None
    tag: int = -1
    dead_lettered: bool = False
    """Whether its dead letter and the settlement of the original are on their way to the disk."""
    found_us: float = inf
    """When the last start found it; its time to live counts from then, or from when it came, if that was earlier."""
    said: list[tuple[int, bool, int]] = field(default_factory=list)
    """What the log says: log position, whether it is settled, and how often it was returned."""

    @property
    def size_bytes(self) -> int:
        return len(self.what.payload)

    def expires_us(self, ttl_us: float) -> float:
        own: float = inf
        if self.what.ttl_us is not None:  # Up to a thousandth longer, so that more expire together.
            step = max(1, self.what.ttl_us // 1024)
            own = self.what.ttl_us + -(self.came_us + self.what.ttl_us) % step
        return min(self.came_us, self.found_us) + min(ttl_us, own)

    @property
    def last_said(self) -> tuple[bool, int]:
        return self.said[-1][1:] if self.said else (False, 0)

    def say(self, position: int) -> bool:
        """Let the log record its state if that has changed; return whether it had."""
        said = (self.state == GONE or self.dead_lettered, self.returned)
        if said == self.last_said:
            return False
        self.said.append((position, *said))
        return True

    def say_settled(self, position: int) -> None:
        """Let the log record only that it is settled."""
        self.said.append((position, True, self.last_said[1]))

    def crash(self, kept: int, now_us: int) -> None:
        """Take over the last state that the log records before log position `kept`."""
        self.said = [one for one in self.said if one[0] < kept]
        _, settled, self.returned = self.said[-1] if self.said else (0, False, 0)
        self.state, self.consumer, self.dead_lettered = GONE if settled else READY, None, False
        self.found_us = now_us


@dataclass(eq=False, repr=False)
class Queue:
    definition: QueueDefinition
    owner: Any
    """The connection with which it is deleted, if it is exclusive."""
    dead: list[tuple[Queue, Message]]
    """Dead messages of all queues that are still to be dead-lettered, in order."""
    used_us: int
    messages: list[Message] = field(default_factory=list)
    """In the order of delivery."""
    consumers: list[Any] = field(default_factory=list)
    """Consumers in the order of their turns."""
    active: Any = None
    """The active one of them, if there is a single active consumer."""
    died: int = 0
    dead_lettered: int = 0
    ending: tuple[int, Callable[[], bool]] | None = None
    """Set if it is to be deleted: after how many dead messages have moved on, and a function that tells whether
    it stays after all.
    """
    counts: Counter[str] = field(default_factory=Counter)
    """Since the start: published, delivered, acked, and by reason those that went without a dead letter."""

    def those(self, *states: str) -> list[Message]:
        return [one for one in self.messages if one.state in states]

    # Messages arrive and leave.

    def arrive(self, messages: list[Message], now_us: int) -> None:
        self.enqueue(messages)
        self.counts["published"] += len(messages)
        self.shorten(now_us)

    def shorten(self, now_us: int) -> None:
        """Make room after messages came, or came back at a start."""
        if self.drops:
            self.expire(now_us)
            self.drop_head()

    def enqueue(self, messages: list[Message]) -> None:
        self.messages += messages
        self.messages.sort(key=lambda one: -one.priority)

    @property
    def drops(self) -> bool:
        limits = self.definition
        limited = limits.max_length is not None or limits.max_length_bytes is not None
        return limited and limits.overflow != REJECT_PUBLISH

    def is_over(self, messages: list[Message]) -> bool:
        """Return whether these are more than may be ready."""
        most, most_bytes = self.definition.max_length, self.definition.max_length_bytes
        size_bytes = sum(one.size_bytes for one in messages)
        return (most is not None and len(messages) > most) or (
            most_bytes is not None and size_bytes > most_bytes
        )

    def drop_head(self) -> None:
        """Drop the oldest message of the lowest priority until the limits hold."""
        while self.drops and self.is_over(self.those(READY)):
            lowest = min(one.priority for one in self.those(READY))
            self.die(self.head(lowest), MAXLEN)

    def head(self, priority: int) -> Any:
        return next((one for one in self.those(READY) if one.priority == priority), None)

    def expire(self, now_us: int) -> None:
        """Expire the oldest message of each priority, then the next one, which is now the oldest."""
        ttl_us = inf if self.definition.ttl_s is None else self.definition.ttl_s * 1e6
        for priority in range(self.definition.max_priority + 1):
            while (head := self.head(priority)) and head.expires_us(ttl_us) <= now_us:
                self.die(head, EXPIRED)

    def die(self, message: Message, reason: str) -> None:
        message.consumer, message.reason = None, reason
        if self.definition.dead_letter_exchange is None:
            message.state = GONE
            self.counts[reason] += 1
        else:
            message.state = DYING
            self.died += 1
            self.dead.append((self, message))

    def settle(self, messages: list[Message], outcome: str) -> None:
        limit = self.definition.delivery_limit
        for one in sorted(messages, key=lambda one: one.tag):
            if outcome == "ack":
                one.state, one.consumer = GONE, None
                self.counts["acked"] += 1
            elif outcome == "reject":
                self.die(one, REJECTED)
            elif outcome == "requeue" and limit is not None and one.returned + 1 > limit:
                self.die(one, DELIVERY_LIMIT)
            else:
                one.state, one.consumer = READY, None
                one.returned += outcome == "requeue"
        if outcome in ("requeue", "release"):
            self.drop_head()

    # Consumers: each has a priority, and limits of what it holds.

    def takes(self, consumer: Any) -> bool:
        """Return whether it may consume here: an exclusive consumer must be the only one."""
        return not self.consumers or not any(one.exclusive for one in (consumer, *self.consumers))

    def subscribe(self, consumer: Any) -> None:
        self.consumers.append(consumer)
        self.active = self.active or consumer

    def unsubscribe(self, consumer: Any, now_us: int, outcome: str) -> None:
        self.consumers.remove(consumer)
        if self.active is consumer:
            waiting = sorted(self.consumers, key=lambda one: -one.priority)
            self.active = waiting[0] if waiting else None
        self.settle(self.held_by(consumer), outcome)
        self.used_us = now_us

    def held_by(self, consumer: object) -> list[Message]:
        return [one for one in self.those(UNACKED) if one.consumer is consumer]

    def is_active(self, consumer: Any) -> bool:
        return not self.definition.single_active_consumer or consumer is self.active

    def is_hungry(self, consumer: Any) -> bool:
        held = self.held_by(consumer)
        size_bytes = sum(one.size_bytes for one in held)
        return (
            self.is_active(consumer)
            and not consumer.paused
            and len(held) < consumer.prefetch
            and (not consumer.prefetch_bytes or size_bytes < consumer.prefetch_bytes)
        )

    def whose_turn(self) -> Any:
        """Return the next consumer that takes more, the highest priority first; each one asked moves to the end."""
        for one in sorted(self.consumers, key=lambda one: -one.priority):
            if not self.definition.single_active_consumer:
                self.consumers.remove(one)
                self.consumers.append(one)
            if self.is_hungry(one):
                return one
        return None

    def is_used(self, now_us: int) -> bool:
        limit_s = self.definition.expires_s
        return limit_s is None or bool(self.consumers) or now_us - self.used_us <= limit_s * 1e6

    def crash(self, kept: int, now_us: int) -> None:
        self.consumers, self.active, self.ending, self.used_us = [], None, None, now_us
        self.died = self.dead_lettered = 0
        self.counts.clear()
        for one in self.messages:
            one.crash(kept, now_us)
        self.shorten(now_us)


@dataclass(eq=False, repr=False)
class Stream:
    definition: StreamDefinition
    messages: list[Message] = field(default_factory=list)
    gaps: list[tuple[int, tuple[int, int, int]]] = field(default_factory=list)
    """(log position, (offset, first missing sequence there, count of missing messages))"""
    stored: list[tuple[int, str, int | None]] = field(default_factory=list)
    """(log position, name of a cursor, its offset or None if it is deleted)"""
    start: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    """(log position, start recorded there)"""

    @property
    def cursors(self) -> dict[str, int]:
        last = {name: offset for _, name, offset in self.stored}
        return {name: offset for name, offset in last.items() if offset is not None}

    def say(self, position: int) -> bool:
        if self.start == (self.starts[-1][1] if self.starts else 0):
            return False
        self.starts.append((position, self.start))
        return True

    def crash(self, kept: int) -> None:
        self.gaps = [one for one in self.gaps if one[0] < kept]
        self.stored = [one for one in self.stored if one[0] < kept]
        self.starts = [one for one in self.starts if one[0] < kept]
        self.start = self.starts[-1][1] if self.starts else 0


@dataclass(eq=False, repr=False)
class Publisher:
    """One epoch of a publisher, by sequence."""

    epoch: int
    stops: bool
    """Whether it stops at a refusal: everything after it is refused, too, until the publisher connects again."""
    stopped: bool = False
    stored: set[int] = field(default_factory=set)
    next: int = 0
    """The first sequence that it has not sent."""
    records: dict[int, int] = field(default_factory=dict)
    """Log position by sequence of messages stored in the log."""
    letters: dict[int, int] = field(default_factory=dict)
    """Log position by sequence of a dead message's first dead letter, which makes its own record unnecessary."""
    snapshots: list[tuple[int, int, set[int]]] = field(default_factory=list)
    """(log position, next, stored) of each snapshot."""
    sent_end: int = 0
    """End of the sequences that it has sent since it connected."""

    def crash(self, kept: int) -> None:
        self.records = {one: at for one, at in self.records.items() if at < kept}
        self.letters = {one: at for one, at in self.letters.items() if at < kept}
        logged = {*self.records, *self.letters}
        self.snapshots = [one for one in self.snapshots if one[0] < kept]
        _, self.next, stored = self.snapshots[-1] if self.snapshots else (0, 0, set[int]())
        self.stored = stored | logged
        self.next = max([self.next, *(one + 1 for one in logged)])
        self.stopped, self.sent_end = False, 0
