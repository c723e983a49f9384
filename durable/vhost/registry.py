"""What is declared in a vhost, by name and by lane; every change goes through `apply`.

Queues that are exclusive or in memory are not in the log: they end with the broker. Their lanes have
ids from another range, so neither kind can be taken for the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from mesh.names import read_pattern
from mesh.protocol.interest import Interest

from ..definition_forms import read, to_plain
from ..definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import (
    DefinitionConflict,
    DurableError,
    InvalidDefinition,
    TooManyQueues,
    UnknownQueue,
    UnknownStream,
)
from ..log.bodies import Missed
from ..queues.journal import Journal
from ..queues.lane import Lane
from ..queues.queue import Queue
from ..routing.permissions import Permissions
from ..routing.router import Router
from . import changes
from .changes import Change, opposite
from .member import Member
from .stream import Stream

TRANSIENT = 1 << 63
"""Lanes from here on are in no log."""
GAPS_MAX = 1000
NOBODY = bytes(16)
QUEUES_MAX = 100_000


class StreamGap(NamedTuple):
    """Something is missing in a stream right before `offset`."""

    lane: int
    offset: int
    missed: Missed
    total: int = 0
    """Messages missing before `offset` altogether."""


class Registry:
    """Of one vhost."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self.queues_max = queues_max
        self.router, self.permissions = Router(), Permissions()
        self.journal, self.held_journal = Journal(), Journal()
        """Of lanes in the log; of transient ones."""
        self.queues: dict[str, Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.lanes: dict[int, Lane] = {}
        """At recovery also those whose declaration has not been seen yet."""
        self.owners: dict[int, Queue | Stream] = {}
        self.captures: Interest[Stream] = Interest()
        """Streams by the topics they capture."""
        self.patterns: Counter[str] = Counter()
        """How many streams capture each; none is 0."""
        self.gaps: dict[int, deque[StreamGap]] = {}
        """Per lane of a stream, by offset, what it could not capture; see `note_gap`."""
        self._absent: set[str] = set()
        """Recovery: queues in memory that exchanges were bound to which end with their bindings."""
        self.next_lane, self._next_transient = 1, TRANSIENT
        self._apply: dict[str, Callable[..., object]] = {
            changes.QUEUE: self._queue, changes.QUEUE_GONE: self._queue_gone,
            changes.EXCHANGE: self._exchange, changes.EXCHANGE_GONE: self.router.delete_exchange,
            changes.STREAM: self._stream, changes.STREAM_GONE: self._stream_gone,
            changes.BIND: self._bind, changes.UNBIND: self._unbind,
            changes.PERMISSION: self._permission,
            changes.PERMISSION_GONE: self.permissions.remove, changes.CURSOR: self._cursor,
        }  # fmt: skip

    def apply(self, change: Change) -> None:
        """Make it so. Applied twice, it is as if once."""
        word, *fields = change
        self._apply[word](*fields)

    def queue(self, name: str) -> Queue:
        """Raises UnknownQueue."""
        queue = self.queues.get(name)
        if queue is None and name in self.streams:
            raise UnknownQueue(name, hint=UnknownQueue.IS_STREAM)
        if queue is None:
            raise UnknownQueue(name, self.queues)
        return queue

    def stream(self, name: str) -> Stream:
        """Raises UnknownStream."""
        stream = self.streams.get(name)
        if stream is None and name in self.queues:
            raise UnknownStream(name, hint=UnknownStream.IS_QUEUE)
        if stream is None:
            raise UnknownStream(name, self.streams)
        return stream

    def member(self, name: str) -> Member:
        return self.queues.get(name) or self.stream(name)

    def check_room(self, more: int) -> None:
        """Whether so many more queues and streams may be declared. Raises TooManyQueues."""
        if len(self.queues) + len(self.streams) + more > self.queues_max:
            raise TooManyQueues(self.queues_max)

    def check_free(self, name: str, kind: str) -> None:
        """Queues and streams share their names, and their number. Raises DefinitionConflict,
        TooManyQueues."""
        self.check_room(1)
        if name in self.queues or name in self.streams:
            there = "queue" if name in self.queues else "stream"
            raise DefinitionConflict(kind, name, [f"kind: {there} there, {kind} asked"])

    def new_lanes(self, definition: QueueDefinition | StreamDefinition) -> list[int]:
        """Ids for a member that is being declared, never given before."""
        count = definition.max_priority + 1 if isinstance(definition, QueueDefinition) else 1
        if isinstance(definition, QueueDefinition) and definition.transient:
            first, self._next_transient = self._next_transient, self._next_transient + count
        else:
            first, self.next_lane = self.next_lane, self.next_lane + count
        return list(range(first, first + count))

    def lane(self, lane_id: int) -> Lane:
        """Made when it is not there: its records may come before its declaration."""
        lane = self.lanes.get(lane_id)
        if lane is None:
            lane = self.lanes[lane_id] = self.make_lane(lane_id)
            if lane_id < TRANSIENT:
                self.next_lane = max(self.next_lane, lane_id + 1)
        return lane

    def make_lane(self, lane_id: int) -> Lane:
        """One that is not here yet."""
        logged = lane_id < TRANSIENT
        return Lane(lane_id, self.journal if logged else self.held_journal, logged=logged)

    def declared(self) -> Iterator[Change]:
        """The changes that make what is declared, as far as the log has it."""
        exchanges, bindings = self.router.definitions()
        for exchange in exchanges:
            yield [changes.EXCHANGE, to_plain(exchange)]
        for queue in self.queues.values():
            if not queue.definition.transient:
                lanes = [lane.id for lane in queue.lanes]
                yield [changes.QUEUE, lanes, to_plain(queue.definition)]
        for stream in self.streams.values():
            yield [changes.STREAM, stream.lane.id, to_plain(stream.definition)]
        for binding in bindings:
            if not self._is_transient_binding(binding):
                yield [changes.BIND, to_plain(binding)]
        for permission in self.permissions.definitions():
            yield [changes.PERMISSION, to_plain(permission)]

    def cursors(self) -> Iterator[Change]:
        """The changes that keep them. They are not declared, and move at any time."""
        for stream in self.streams.values():
            for name, offset in stream.cursors.items():
                yield from changes.cursor(stream.name, name, offset, stream.told.get(name, 0))

    def lasting(self, wanted: Sequence[Change]) -> list[Change]:
        """Those that belong in the log, each by itself: what is transient leaves no trace, nor what is bound to
        it, but for what decides how long an exchange lives that ends with its bindings."""
        return [one for one in wanted if not self._is_transient(one)]

    def _is_transient(self, change: Change) -> bool:
        word, subject = change[0], change[1]
        if word == changes.QUEUE:
            return bool(subject[0] >= TRANSIENT)
        if word == changes.QUEUE_GONE:
            bound = self.router.bindings_to(subject)
            return self._is_transient_queue(subject) and not any(map(self._ends, bound))
        if word in (changes.BIND, changes.UNBIND):
            return self._is_transient_binding(read(BindingDefinition, subject))
        return False

    def _is_transient_binding(self, binding: BindingDefinition) -> bool:
        if binding.to_exchange or self._ends(binding):
            return False
        return self._is_transient_queue(binding.destination)

    def _is_transient_queue(self, name: str) -> bool:
        queue = self.queues.get(name)
        return queue is not None and queue.definition.transient

    def _ends(self, binding: BindingDefinition) -> bool:
        """Whether its exchange ends with its last binding."""
        router, name = self.router, binding.exchange
        return router.has_exchange(name) and router.exchange(name).auto_delete

    def keep_only(self, declared: list[Change]) -> None:
        """What is declared by none of these changes does not exist."""
        identities = set(map(_identity, declared))
        for change in [*self.declared(), *self.cursors()]:
            if _identity(change) not in identities:
                self.apply(opposite(change))
        for change in declared:  # Bindings of before may have taken their exchange with them.
            if change[0] in (changes.EXCHANGE, changes.BIND):
                with suppress(DurableError, LookupError, TypeError, ValueError):  # Said before.
                    self.apply(change)

    def note_gap(self, gap: StreamGap) -> None:
        """Gaps come by offset. Over GAPS_MAX the two oldest become one: how many messages are missing
        stays true, whose they were is forgotten."""
        gaps = self.gaps.setdefault(gap.lane, deque())
        before = gaps[-1].total if gaps else 0
        gaps.append(gap._replace(total=before + gap.missed.messages))
        if len(gaps) > GAPS_MAX:
            gaps.popleft()
            gaps[0] = gaps[0]._replace(missed=_of_several(gaps[0].total))

    def gaps_between(self, lane: int, start: int, end: int, known: int = 0) -> list[StreamGap]:
        """Those of a stream before the offsets [start, end), for whoever knows of so many missing messages:
        of gaps that have become one since, what is left."""
        gaps = self.gaps.get(lane)
        if not gaps or gaps[-1].offset < start:
            return []
        low = bisect_left(gaps, start, key=_offset)
        found: list[StreamGap] = []
        for gap in islice(gaps, low, bisect_left(gaps, end, lo=low, key=_offset)):
            left = gap.total - known
            if left >= gap.missed.messages:
                found.append(gap)
            elif left > 0:
                found.append(gap._replace(missed=_of_several(left)))
        return found

    def missing_before(self, lane: int, offset: int) -> int:
        """How many messages of this stream, as far as it has not become one gap with some behind it."""
        gaps = self.gaps.get(lane, ())
        at = bisect_left(gaps, offset, key=_offset)
        return gaps[at - 1].total if at else 0

    def all_gaps(self) -> Iterator[StreamGap]:
        for gaps in self.gaps.values():
            yield from gaps

    def drop_undeclared(self) -> None:
        """After recovery: lanes of which nothing is declared belonged to what was deleted, and what
        was in memory is gone."""
        for name in list(self._absent):
            self._absent_gone(name)
        for lane_id in self.lanes.keys() - self.owners.keys():
            del self.lanes[lane_id]
        for lane_id in self.gaps.keys() - self.owners.keys():
            del self.gaps[lane_id]

    # What each word does

    def _queue(self, lane_ids: list[int], plain: dict[str, Any]) -> None:
        definition = read(QueueDefinition, plain)
        there = self.queues.get(definition.name)
        if there is not None and [lane.id for lane in there.lanes] == lane_ids:
            return
        self._make_way(definition.name)
        queue = Queue(definition, [self.lane(lane_id) for lane_id in lane_ids])
        self.queues[definition.name] = queue
        self.owners.update(dict.fromkeys(lane_ids, queue))
        self.router.add_queue(definition.name)

    def _queue_gone(self, name: str) -> None:
        self._absent_gone(name)
        queue = self.queues.pop(name, None)
        if queue is None:
            return
        self.router.remove_queue(name)
        for lane in queue.lanes:
            self._forget(lane)

    def _make_way(self, name: str) -> None:
        """Recovery: a record that said what had been of this name was gone has been freed."""
        self._queue_gone(name)
        self._stream_gone(name)

    def _stream(self, lane_id: int, plain: dict[str, Any]) -> None:
        definition = read(StreamDefinition, plain)
        there = self.streams.get(definition.name)
        if there is not None and there.lane.id == lane_id:
            return
        self._make_way(definition.name)
        stream = Stream(definition, self.lane(lane_id))
        self.streams[definition.name] = self.owners[lane_id] = stream
        self.router.add_queue(definition.name)
        for pattern in definition.patterns:
            self.captures.add(read_pattern(pattern), stream)
            self.patterns[pattern] += 1

    def _stream_gone(self, name: str) -> None:
        stream = self.streams.pop(name, None)
        if stream is not None:
            self.router.remove_queue(name)
            self._forget(stream.lane)
            for pattern in stream.definition.patterns:
                self.captures.remove(read_pattern(pattern), stream)
                self.patterns[pattern] -= 1
                if not self.patterns[pattern]:
                    del self.patterns[pattern]

    def _forget(self, lane: Lane) -> None:
        """Its messages are gone with it, and nothing in the log needs to say so again."""
        lane.journal.forget(lane.id)
        lane.journal.released += lane.referenced()
        lane.retire()
        self.gaps.pop(lane.id, None)
        del self.lanes[lane.id], self.owners[lane.id]

    def _exchange(self, plain: dict[str, Any]) -> None:
        definition = read(ExchangeDefinition, plain)
        try:
            self.router.declare_exchange(definition)
        except DefinitionConflict:  # Recovery, see _make_way.
            self.router.delete_exchange(definition.name)
            self.router.declare_exchange(definition)

    def _bind(self, plain: dict[str, Any]) -> None:
        binding = read(BindingDefinition, plain)
        try:
            self.router.bind(binding)
        except UnknownQueue:  # Recovery: it was in memory.
            if not self.router.exchange(binding.exchange).auto_delete:
                raise
            self._absent.add(binding.destination)
            self.router.add_queue(binding.destination)
            self.router.bind(binding)

    def _absent_gone(self, name: str) -> None:
        if name in self._absent:
            self._absent.remove(name)
            self.router.remove_queue(name)

    def _unbind(self, plain: dict[str, Any]) -> None:
        self.router.unbind(read(BindingDefinition, plain))

    def _permission(self, plain: dict[str, Any]) -> None:
        try:
            definition = read(PermissionDefinition, plain)
        except InvalidDefinition:  # Recovery, of a later release: what it allowed is not known.
            self.permissions.declare(PermissionDefinition(cluster=plain["cluster"]))
            raise
        self.permissions.declare(definition)

    def _cursor(self, stream_name: str, name: str, offset: int | None, told: int = 0) -> None:
        stream = self.streams.get(stream_name)
        if stream is None:
            return
        if offset is None:
            stream.cursors.pop(name, None)
        else:
            stream.cursors[name] = offset
        if offset is None or not told:
            stream.told.pop(name, None)
        else:
            stream.told[name] = told


def _of_several(messages: int) -> Missed:
    return Missed(NOBODY, 0, "", 0, messages)


def _offset(gap: StreamGap) -> int:
    return gap.offset


def _identity(change: Change) -> Hashable:
    """Equal for changes that declare one and the same thing, with whatever settings."""
    word, *fields = change
    if word == changes.BIND:
        return word, read(BindingDefinition, fields[0]).identity
    if word == changes.CURSOR:
        return word, fields[0], fields[1]
    if word in (changes.QUEUE, changes.STREAM):
        lanes = fields[0] if isinstance(fields[0], list) else [fields[0]]
        return word, fields[1]["name"], tuple(lanes)
    return word, fields[0].get("name"), fields[0].get("cluster")
