"""A model of a vhost, as plain lists. Routes are those of the router's model.

Everything recorded in the log takes the next log position. A crash leaves what is before some log position and nothing
else: all that is durable, and some of the rest, which had been written by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from durable.definitions import REJECT_PUBLISH, PermissionDefinition
from tests.unit.durable.routing.model import Model as Routes
from tests.vhost_members import (
    DYING,
    GONE,
    READY,
    UNACKED,
    Message,
    Published,
    Publisher,
    Queue,
    Stream,
)

NOW_US = 1_000_000
Numbered = tuple[int, Published]
"""(the publisher's sequence, the message)"""


class Arriving(NamedTuple):
    """Messages in the log that may not be on the disk yet."""

    position: int
    member: Queue | Stream
    messages: list[Message]


@dataclass(eq=False)
class OpenRecord:
    """A record shared by messages to the same destinations, as long as none of these gets another record in between."""

    names: list[str]
    count: int = 0
    """Count of messages in it so far."""
    arriving: list[Arriving] = field(default_factory=list)
    """By destination."""


class Model:
    def __init__(self) -> None:
        self.now_us = NOW_US
        self.end = 0
        """The next log position."""
        self.routes = Routes()
        self.permissions: dict[str, PermissionDefinition] = {}
        self.queues: dict[str, Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.pending: list[Arriving] = []
        self.dead: list[tuple[Queue, Message]] = []
        self.publishers: dict[bytes, Publisher] = {}
        self.open_records: dict[str, OpenRecord] = {}
        """By destination: the last record of the current publish."""
        self.counts: Counter[str] = Counter()
        """Since the start: received, duplicates among these, dropped (routed nowhere), refused."""

    # Declarations

    def add(self, name: str, member: Queue | Stream) -> None:
        if isinstance(member, Queue):
            self.queues[name] = member
        else:
            self.streams[name] = member
        self.routes.queues.append(name)

    def remove(self, name: str) -> None:
        queue = self.queues.pop(name, None)
        self.streams.pop(name, None)
        if queue is not None:
            self.dead[:] = [one for one in self.dead if one[0] is not queue]
            queue.dead = []
        self.routes.queues.remove(name)
        self.routes.settle(set())

    def end_queue(self, queue: Queue) -> None:
        """Delete a queue if it was to be deleted and its dead have moved on."""
        name = queue.definition.name
        if queue.ending is None or self.queues.get(name) is not queue:
            return
        died, stays = queue.ending
        if queue.dead_lettered >= died:
            queue.ending = None
            if not stays():
                self.remove(name)

    # Arriving messages

    def publish(self, name: bytes, batches: list[list[Numbered]], *, mandatory: bool) -> int:
        """Publish batches; return how many messages are refused."""
        publisher = self.publishers[name]
        refused = 0
        self.open_records.clear()
        for batch in batches:
            new = list(_new_parts(batch, publisher))
            self.counts["received"] += len(batch)
            self.counts["duplicates"] += len(batch) - sum(map(len, new))
            refused += sum(self._take(publisher, one, mandatory) for one in new)
            publisher.sent_end = batch[-1][0] + 1
        publisher.next = max([publisher.next, *(batch[-1][0] + 1 for batch in batches)])
        return refused

    def _take(self, publisher: Publisher, new: list[Numbered], mandatory: bool) -> int:
        """Publish messages that differ only in their payloads; return how many are refused."""
        messages = [one for _, one in new]
        exchange = self.routes.exchange(messages[0].exchange)
        stored, refused = 0, len(new)
        if exchange is not None and not exchange.internal and not publisher.stopped:
            names = self.route(messages[0])
            into = self._shared(names) or OpenRecord(names)
            position = into.arriving[0].position if into.arriving else self.end
            stored = self.store(names, messages, into)
            refused = len(new) - stored if names or mandatory else 0
            for sequence, _ in new[:stored]:
                publisher.stored.add(sequence)
                if into.arriving:
                    publisher.records[sequence] = position
            if stored:
                self.open_records.update(dict.fromkeys(names, into))
        self.counts["refused"] += refused
        self.counts["dropped"] += len(new) - stored - refused
        publisher.stopped |= publisher.stops and refused > 0
        return refused

    def _shared(self, names: list[str]) -> OpenRecord | None:
        """Return the last record of these destinations, if it is that of all of them only and all are in the log."""
        found = {self.open_records.get(name) for name in names}
        into = found.pop() if len(found) == 1 else None
        shared = into is not None and into.names == names and all(map(self.is_logged, names))
        return into if shared else None

    def route(self, message: Published) -> list[str]:
        names = self.routes.route(message.exchange, [message.key, *message.cc, *message.bcc], {})
        return sorted(one for one in names if not message.comes_back_to(one))

    def is_logged(self, name: str) -> bool:
        return name in self.streams or not self.queues[name].definition.transient

    def store(
        self, names: Sequence[str], messages: Sequence[Published], into: OpenRecord | None = None
    ) -> int:
        """Store messages in all destinations until one of these is full; return how many.

        They become one record of the log, or are added to the record `into` if that has messages.
        """
        members = [self.queues.get(name) or self.streams[name] for name in names]
        arriving: list[list[Message]] = [[] for _ in members]
        into = into or OpenRecord([*names])
        for at, what in enumerate(messages if members else (), into.count):
            now = [Message(what, _priority(one, what), self.now_us, into, at) for one in members]
            there = zip(members, arriving, now, strict=True)
            if any(self._is_full(member, [*before, one]) for member, before, one in there):
                break
            for one, before in zip(now, arriving, strict=True):
                before.append(one)
        if not members or not arriving[0]:
            return 0
        position = self.end
        for at, (member, some) in enumerate(zip(members, arriving, strict=True)):
            if isinstance(member, Queue) and member.definition.transient:
                member.arrive(some, self.now_us)
            elif into.count:  # They arrive together.
                into.arriving[at].messages.extend(some)
            else:
                into.arriving.append(Arriving(position, member, some))
                self.pending.append(into.arriving[-1])
                self.end = position + 1
        into.count += len(arriving[0])
        return len(arriving[0])

    def on_their_way(self, member: Queue | Stream) -> list[Message]:
        return [one for _, to, messages in self.pending if to is member for one in messages]

    def _is_full(self, member: Queue | Stream, more: list[Message]) -> bool:
        if isinstance(member, Stream) or member.definition.overflow != REJECT_PUBLISH:
            return False
        return member.is_over([*member.those(READY), *self.on_their_way(member), *more])

    def capture(self, message: Published, count: int, first: int, lost: int) -> None:
        """Capture messages published on the mesh, from sequence `first` on; the `lost` ones before it are missing."""
        for _, stream in sorted(self.streams.items()) if lost else ():
            offset = len(stream.messages) + len(self.on_their_way(stream))
            stream.gaps.append((self.end, (offset, first - lost, lost)))
            self.end += 1
        self.store(sorted(self.streams), [message] * count)

    def unsettled(self, queue: Queue) -> int:
        return len(queue.those(READY, UNACKED, DYING)) + len(self.on_their_way(queue))

    # Leaving messages

    def dead_letter(self) -> None:
        """Dead-letter all dead messages, those of durable queues first; neighbours in one record are dead-lettered together."""
        dead = sorted(self.dead, key=lambda one: one[0].definition.transient)
        self.dead.clear()
        while dead:
            count = 1
            while count < len(dead) and _together(*dead[count - 1], *dead[count]):
                count += 1
            self._dead_letter(dead[0][0], [message for _, message in dead[:count]])
            del dead[:count]

    def _dead_letter(self, queue: Queue, dead: list[Message]) -> None:
        """Store the dead letters, then the settlement of the originals."""
        letters = [one.what.died(queue.definition, one.reason, self.now_us) for one in dead]
        names, position = self.route(letters[0]), self.end
        stored = self.store(names, letters)
        self.counts["refused" if names else "dropped"] += len(dead) - stored
        for letter in letters[:stored] if self.end > position else ():
            assert letter.origin is not None, "streams, which capture, have no dead letters"
            name, epoch, sequence = letter.origin
            if self.publishers[name].epoch == epoch:
                self.publishers[name].letters.setdefault(sequence, position)
        for one in dead:
            if queue.definition.transient:
                one.state = GONE
                queue.dead_lettered += 1
            else:
                one.dead_lettered = True
                one.say_settled(self.end)
        self.end += not queue.definition.transient

    # The log.

    def flush(self) -> None:
        """Record in the log what was settled and what was returned."""
        queues = [one for one in self.queues.values() if not one.definition.transient]
        said = [one.say(self.end) for queue in queues for one in queue.messages]
        said += [stream.say(self.end) for stream in self.streams.values()]
        self.end += any(said)

    def snapshot(self) -> None:
        """Write a snapshot, which includes publishers' sequences of messages in memory only. It is written twice."""
        for one in self.publishers.values():
            one.snapshots.append((self.end, one.next, set(one.stored)))
        self.end += 2

    def commit(self) -> None:
        """Everything in the log is on the disk now."""
        for queue in self.queues.values():
            for one in queue.messages:
                if one.dead_lettered:
                    one.state, one.dead_lettered = GONE, False
                    queue.dead_lettered += 1
        for _, member, messages in self.pending:
            if isinstance(member, Queue):
                member.arrive(messages, self.now_us)
            else:
                member.messages += messages
        self.pending.clear()

    def crash(self, kept: int) -> None:
        """Leave only what is before log position `kept`."""
        for position, member, messages in self.pending:
            if position < kept and isinstance(member, Queue):
                member.enqueue(messages)
            elif position < kept:
                member.messages += messages
        self.pending.clear()
        self.dead.clear()
        self.counts.clear()
        self.end = kept
        self.queues = {
            name: one for name, one in self.queues.items() if not one.definition.transient
        }
        self.routes.queues = [*self.queues, *self.streams]
        self.routes.settle(set())
        for queue in self.queues.values():
            queue.crash(kept, self.now_us)
        for stream in self.streams.values():
            stream.crash(kept)
        for publisher in self.publishers.values():
            publisher.crash(kept)


def _new_parts(batch: list[Numbered], publisher: Publisher) -> Iterator[list[Numbered]]:
    """Yield the messages that were not stored before, as parts of adjacent sequences.

    Messages that were never sent before begin a new part.
    """
    part: list[Numbered] = []
    for one in batch:
        if part and (one[0] in publisher.stored or one[0] == publisher.next):
            yield part
            part = []
        if one[0] not in publisher.stored:
            part.append(one)
    if part:
        yield part


def _priority(member: Queue | Stream, message: Published) -> int:
    if isinstance(member, Stream):
        return 0
    return min(message.priority, member.definition.max_priority)


def _together(queue: Queue, one: Message, other_queue: Queue, other: Message) -> bool:
    return (queue, one.record, one.reason, one.at + 1) == (
        other_queue, other.record, other.reason, other.at,
    )  # fmt: skip
