"""What a vhost ought to do, as plain lists: slow, and plain to see. Routes are those of the router's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from durable.definitions import QueueDefinition, StreamDefinition
from tests.unit.durable.routing.model import Model as Routes

READY, UNACKED, DYING, GONE = "ready", "unacked", "dying", "gone"


@dataclass(eq=False)
class Message:
    payload: bytes
    key: str
    state: str = READY
    returned: int = 0
    consumer: Any = None
    tag: int = -1
    buried: bool = False
    """Its copy, and that it has moved on, are in the log: on their way to the disk."""
    written: tuple[bool, int] = (False, 0)
    """Whether it is settled, and how often it came back, as the log says."""
    durable: tuple[bool, int] = (False, 0)
    """The same, as the disk says."""


@dataclass(eq=False)
class Queue:
    definition: QueueDefinition
    owner: Any
    """The connection that it ends with, if it is exclusive."""
    messages: list[Message] = field(default_factory=list)
    consumers: list[Any] = field(default_factory=list)
    died: int = 0
    moved_on: int = 0
    ending: tuple[int, bool] | None = None
    """It is to go once so many of the dead have moved on; whether a consumer keeps it."""

    def those(self, *states: str) -> list[Message]:
        return [one for one in self.messages if one.state in states]

    def held_by(self, consumer: object) -> list[Message]:
        return [one for one in self.those(UNACKED) if one.consumer is consumer]

    def come_back(self, message: Message, *, counted: bool) -> None:
        message.state, message.consumer = READY, None
        message.returned += counted


@dataclass(eq=False)
class Stream:
    definition: StreamDefinition
    messages: list[tuple[bytes, str]] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """(offset, first sequence that is missing there, how many)"""
    gaps_durable: int = 0
    cursors: dict[str, int] = field(default_factory=dict)
    cursors_durable: dict[str, int] = field(default_factory=dict)
    start: int = 0
    start_written: int = 0
    start_durable: int = 0


@dataclass(eq=False)
class Publisher:
    """Of one epoch, by sequence."""

    epoch: int
    stored: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    """Of which the log says so, on its way to the disk."""
    durable: set[int] = field(default_factory=set)


class Model:
    def __init__(self) -> None:
        self.routes = Routes()
        self.queues: dict[str, Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.pending: list[tuple[Queue | Stream, bytes, str]] = []
        """In the log, not on the disk."""
        self.graves: list[tuple[Queue, Message]] = []
        """Rejected, and still to be buried."""
        self.publishers: dict[bytes, Publisher] = {}

    # What is declared.

    def add(self, name: str, member: Queue | Stream) -> None:
        if isinstance(member, Queue):
            self.queues[name] = member
        else:
            self.streams[name] = member
        self.routes.queues.append(name)

    def remove(self, name: str) -> None:
        queue = self.queues.pop(name, None)
        self.streams.pop(name, None)
        self.graves = [one for one in self.graves if one[0] is not queue]
        self.routes.queues.remove(name)
        self.routes.settle(set())

    def end(self, queue: Queue) -> None:
        """If it was to, and can."""
        name = queue.definition.name
        if queue.ending is None or self.queues.get(name) is not queue:
            return
        died, kept_by_consumers = queue.ending
        if queue.moved_on >= died:
            queue.ending = None
            if not (kept_by_consumers and queue.consumers):
                self.remove(name)

    # Messages.

    def announced(self, member: Queue | Stream) -> int:
        return sum(one is member for one, *_ in self.pending)

    def unsettled(self, queue: Queue) -> int:
        return len(queue.those(READY, UNACKED, DYING)) + self.announced(queue)

    def is_full(self, member: Queue | Stream) -> bool:
        limit = member.definition.max_length
        if isinstance(member, Stream) or limit is None:
            return False
        return len(member.those(READY)) + self.announced(member) >= limit

    def store(self, exchange: str, key: str, payload: bytes) -> tuple[bool, bool, bool]:
        """Into all that it is routed to; whether anything got it, whether the log, and whether one of
        them was full."""
        names = sorted(self.routes.route(exchange, [key], {}))
        members = [self.queues.get(name) or self.streams[name] for name in names]
        if any(map(self.is_full, members)):
            return False, False, True
        logged = False
        for member in members:
            if isinstance(member, Queue) and member.definition.transient:
                member.messages.append(Message(payload, key))
            else:
                self.pending.append((member, payload, key))
                logged = True
        return bool(members), logged, False

    def settle(self, queue: Queue, message: Message, outcome: str) -> None:
        if outcome in ("requeue", "release"):
            queue.come_back(message, counted=outcome == "requeue")
            return
        message.state, message.consumer = GONE, None
        if outcome == "reject" and queue.definition.dead_letter_exchange is not None:
            message.state = DYING
            queue.died += 1
            self.graves.append((queue, message))

    def bury(self) -> None:
        """Those of queues in the log first."""
        graves, self.graves = self.graves, []
        for queue, one in sorted(graves, key=lambda grave: grave[0].definition.transient):
            definition = queue.definition
            key = definition.dead_letter_routing_key
            self.store(definition.dead_letter_exchange or "", key or one.key, one.payload)
            if definition.transient:
                one.state = GONE
                queue.moved_on += 1
            else:
                one.buried, one.written = True, (True, one.returned)

    # The log.

    def flush(self) -> None:
        """What has been settled stands in the log."""
        for queue in self.queues.values():
            for one in queue.messages:
                one.written = (one.state == GONE or one.buried, one.returned)
        for stream in self.streams.values():
            stream.start_written = stream.start

    def commit(self) -> None:
        """What stands in the log is on the disk."""
        for member, payload, key in self.pending:
            if isinstance(member, Queue):
                member.messages.append(Message(payload, key))
            else:
                member.messages.append((payload, key))
        self.pending.clear()
        for queue in self.queues.values():
            for one in queue.messages:
                one.durable = one.written
                if one.buried:
                    one.state, one.buried = GONE, False
                    queue.moved_on += 1
        for stream in self.streams.values():
            stream.gaps_durable = len(stream.gaps)
            stream.cursors_durable = dict(stream.cursors)
            stream.start_durable = stream.start_written
        for publisher in self.publishers.values():
            publisher.durable |= publisher.written

    def crash(self) -> None:
        """Whatever is not on the disk has not been."""
        self.pending.clear()
        self.graves.clear()
        self.queues = {
            name: one for name, one in self.queues.items() if not one.definition.transient
        }
        self.routes.queues = [*self.queues, *self.streams]
        self.routes.settle(set())
        for queue in self.queues.values():
            queue.consumers, queue.ending, queue.died, queue.moved_on = [], None, 0, 0
            for one in queue.messages:
                settled, one.returned = one.durable
                one.state, one.consumer, one.buried = GONE if settled else READY, None, False
                one.written = one.durable
        for stream in self.streams.values():
            del stream.gaps[stream.gaps_durable :]
            stream.cursors = dict(stream.cursors_durable)
            stream.start = stream.start_written = stream.start_durable
        for publisher in self.publishers.values():
            publisher.stored = set(publisher.durable)
            publisher.written = set(publisher.durable)
