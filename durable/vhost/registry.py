"""Everything that is declared in a vhost, by name and by lane; every change goes through `apply`.

Exclusive queues and memory queues are not in the log: they end with the broker. Their lanes have ids from
a range of their own, so a transient lane is never taken for a logged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mesh.names import check_existing_pattern
from mesh.protocol.interest import Interest

from ..definition_forms import read_definition, to_plain
from ..definitions import (
    BindingDefinition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from ..errors import (
    DefinitionConflict,
    InvalidDefinition,
    TooManyQueues,
    UnknownQueue,
    UnknownStream,
)
from ..queues.journal import Journal
from ..queues.lane import Lane
from ..queues.queue import Queue
from ..routing.permissions import Permissions
from ..routing.router import Router
from . import changes
from .changes import Change
from .gaps import Gaps
from .member import Member
from .stream import Stream

TRANSIENT_LANE_MIN = 1 << 63
"""Lanes with ids from here on are in no log."""
QUEUES_MAX = 100_000


class Registry:
    """The registry of one vhost."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self.queues_max = queues_max
        self.router, self.permissions = Router(), Permissions()
        self.journal, self.held_journal = Journal(), Journal()
        """The journal of lanes in the log, and that of transient lanes."""
        self.queues: dict[str, Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.lanes: dict[int, Lane] = {}
        """During recovery also lanes whose declaration has not been read yet."""
        self.owners: dict[int, Queue | Stream] = {}
        self.captures: Interest[Stream] = Interest()
        """Streams by the topics that they capture."""
        self.patterns: Counter[str] = Counter()
        """How many streams capture each pattern; never 0."""
        self.gaps = Gaps()
        self._absent_queues: set[str] = set()
        """During recovery: names of memory queues, which are gone, that auto-delete exchanges had bindings
        to. Removing these bindings decides whether such an exchange is deleted, too."""
        self.next_lane, self._next_transient = 1, TRANSIENT_LANE_MIN
        self._handlers: dict[str, Callable[..., object]] = {
            changes.QUEUE: self._queue, changes.QUEUE_GONE: self._queue_gone,
            changes.EXCHANGE: self._exchange, changes.EXCHANGE_GONE: self.router.delete_exchange,
            changes.STREAM: self._stream, changes.STREAM_GONE: self._stream_gone,
            changes.BIND: self._bind, changes.UNBIND: self._unbind,
            changes.PERMISSION: self._permission, changes.PERMISSION_WITH_CAPTURE: self._permission,
            changes.PERMISSION_GONE: self.permissions.remove, changes.CURSOR: self._cursor,
        }  # fmt: skip

    def apply(self, change: Change) -> None:
        """Apply one change. Applying it twice has the same effect as once."""
        word, *fields = change
        self._handlers[word](*fields)

    def queue(self, name: str) -> Queue:
        """Return the queue of this name. Raises UnknownQueue."""
        queue = self.queues.get(name)
        if queue is None and name in self.streams:
            raise UnknownQueue(name, hint=UnknownQueue.IS_STREAM)
        if queue is None:
            raise UnknownQueue(name, self.queues)
        return queue

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises UnknownStream."""
        stream = self.streams.get(name)
        if stream is None and name in self.queues:
            raise UnknownStream(name, hint=UnknownStream.IS_QUEUE)
        if stream is None:
            raise UnknownStream(name, self.streams)
        return stream

    def member(self, name: str) -> Member:
        return self.queues.get(name) or self.stream(name)

    def check_room(self, more: int) -> None:
        """Raises TooManyQueues if `more` further queues and streams may not be declared."""
        if len(self.queues) + len(self.streams) + more > self.queues_max:
            raise TooManyQueues(self.queues_max)

    def check_free(self, name: str, kind: str) -> None:
        """Raises DefinitionConflict if a queue or stream has this name, TooManyQueues if there may be no
        more: both kinds share one namespace and one limit."""
        self.check_room(1)
        if name in self.queues or name in self.streams:
            existing = "queue" if name in self.queues else "stream"
            raise DefinitionConflict.of_kinds(name, existing, kind)

    def new_lanes(self, definition: QueueDefinition | StreamDefinition) -> list[int]:
        """Return lane ids for a queue or stream that is being declared; no id is ever given twice."""
        count = definition.max_priority + 1 if isinstance(definition, QueueDefinition) else 1
        if isinstance(definition, QueueDefinition) and definition.transient:
            first, self._next_transient = self._next_transient, self._next_transient + count
        else:
            first, self.next_lane = self.next_lane, self.next_lane + count
        return list(range(first, first + count))

    def lane(self, lane_id: int) -> Lane:
        """Return the lane, made if it is not there: at recovery its records may come before its declaration."""
        lane = self.lanes.get(lane_id)
        if lane is None:
            lane = self.lanes[lane_id] = self.make_lane(lane_id)
            if lane_id < TRANSIENT_LANE_MIN:
                self.next_lane = max(self.next_lane, lane_id + 1)
        return lane

    def make_lane(self, lane_id: int) -> Lane:
        """Return a new lane for an id that has none yet."""
        logged = lane_id < TRANSIENT_LANE_MIN
        return Lane(lane_id, self.journal if logged else self.held_journal, logged=logged)

    def declared(self) -> Iterator[Change]:
        """Yield the changes that declare everything that belongs in the log."""
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
            yield from changes.permission(permission)

    def cursors(self) -> Iterator[Change]:
        """Yield the changes that set all cursors. They are no declarations, and move at any time."""
        for stream in self.streams.values():
            for name, offset in stream.cursors.items():
                yield from changes.cursor(
                    stream.name, name, offset, stream.reported_missing.get(name, 0)
                )

    def logged_changes(self, wanted: Sequence[Change]) -> list[Change]:
        """Return the changes that belong in the log. Transient queues and bindings to them do not, except
        where a binding decides how long an auto-delete exchange lives."""
        return [one for one in wanted if not self._is_transient(one)]

    def _is_transient(self, change: Change) -> bool:
        word, subject = change[0], change[1]
        if word == changes.QUEUE:
            return bool(subject[0] >= TRANSIENT_LANE_MIN)
        if word == changes.QUEUE_GONE:
            bound = self.router.bindings_to(subject)
            return self._is_transient_queue(subject) and not any(map(self._is_auto_delete, bound))
        if word in (changes.BIND, changes.UNBIND):
            return self._is_transient_binding(read_definition(BindingDefinition, subject))
        return False

    def _is_transient_binding(self, binding: BindingDefinition) -> bool:
        queue = self.queues.get(binding.destination)
        return is_transient_binding(binding, queue, auto_delete=self._is_auto_delete(binding))

    def _is_transient_queue(self, name: str) -> bool:
        queue = self.queues.get(name)
        return queue is not None and queue.definition.transient

    def _is_auto_delete(self, binding: BindingDefinition) -> bool:
        """Whether the exchange of this binding is deleted with its last binding."""
        router, name = self.router, binding.exchange
        return router.has_exchange(name) and router.exchange(name).auto_delete

    def drop_undeclared(self) -> None:
        """At the end of recovery: remove lanes that no declaration has, which belonged to something deleted,
        and memory queues, which are gone."""
        for name in list(self._absent_queues):
            self._remove_absent(name)
        for lane_id in self.lanes.keys() - self.owners.keys():
            del self.lanes[lane_id]
        self.gaps.keep_only(self.owners.keys())

    # One method for each word of a change

    def _queue(self, lane_ids: list[int], plain: dict[str, Any]) -> None:
        definition = read_definition(QueueDefinition, plain)
        existing = self.queues.get(definition.name)
        if existing is not None and [lane.id for lane in existing.lanes] == lane_ids:
            return
        self._free_name(definition.name)
        queue = Queue(definition, [self.lane(lane_id) for lane_id in lane_ids])
        self.queues[definition.name] = queue
        self.owners.update(dict.fromkeys(lane_ids, queue))
        self.router.add_queue(definition.name)

    def _queue_gone(self, name: str) -> None:
        self._remove_absent(name)
        queue = self.queues.pop(name, None)
        if queue is None:
            return
        self.router.remove_queue(name)
        for lane in queue.lanes:
            self._forget(lane)

    def _free_name(self, name: str) -> None:
        """During recovery: the record that deleted the former owner of this name may have been freed."""
        self._queue_gone(name)
        self._stream_gone(name)

    def _stream(self, lane_id: int, plain: dict[str, Any]) -> None:
        definition = read_definition(StreamDefinition, plain)
        existing = self.streams.get(definition.name)
        if existing is not None and existing.lane.id == lane_id:
            return
        self._free_name(definition.name)
        stream = Stream(definition, self.lane(lane_id))
        self.streams[definition.name] = self.owners[lane_id] = stream
        self.router.add_queue(definition.name)
        for pattern in definition.patterns:
            self.captures.add(check_existing_pattern(pattern), stream)
            self.patterns[pattern] += 1

    def _stream_gone(self, name: str) -> None:
        stream = self.streams.pop(name, None)
        if stream is not None:
            self.router.remove_queue(name)
            self._forget(stream.lane)
            for pattern in stream.definition.patterns:
                self.captures.remove(check_existing_pattern(pattern), stream)
                self.patterns[pattern] -= 1
                if not self.patterns[pattern]:
                    del self.patterns[pattern]

    def _forget(self, lane: Lane) -> None:
        """Forget the lane with its messages; nothing in the log needs to settle them."""
        lane.journal.forget(lane.id)
        lane.journal.released += lane.referenced()
        lane.retire()
        self.gaps.forget(lane.id)
        del self.lanes[lane.id], self.owners[lane.id]

    def _exchange(self, plain: dict[str, Any]) -> None:
        definition = read_definition(ExchangeDefinition, plain)
        try:
            self.router.declare_exchange(definition)
        except DefinitionConflict:  # During recovery, see `_free_name`.
            self.router.delete_exchange(definition.name)
            self.router.declare_exchange(definition)

    def _bind(self, plain: dict[str, Any]) -> None:
        binding = read_definition(BindingDefinition, plain)
        try:
            self.router.bind(binding)
        except UnknownQueue:  # During recovery: it was a memory queue.
            if not self.router.exchange(binding.exchange).auto_delete:
                raise
            self._absent_queues.add(binding.destination)
            self.router.add_queue(binding.destination)
            self.router.bind(binding)

    def _remove_absent(self, name: str) -> None:
        if name in self._absent_queues:
            self._absent_queues.remove(name)
            self.router.remove_queue(name)

    def _unbind(self, plain: dict[str, Any]) -> None:
        self.router.unbind(read_definition(BindingDefinition, plain))

    def _permission(self, plain: dict[str, Any]) -> None:
        try:
            definition = read_definition(PermissionDefinition, plain)
        # Recovery, written by a later release: its fields cannot be read, so it allows nothing.
        except InvalidDefinition:
            self.permissions.declare(PermissionDefinition(cluster=plain["cluster"], capture=""))
            raise
        self.permissions.declare(definition)

    def _cursor(self, stream_name: str, name: str, offset: int | None, reported: int = 0) -> None:
        stream = self.streams.get(stream_name)
        if stream is None:
            return
        if offset is None:
            stream.cursors.pop(name, None)
        else:
            stream.cursors[name] = offset
        if offset is None or not reported:
            stream.reported_missing.pop(name, None)
        else:
            stream.reported_missing[name] = reported


def is_transient_binding(
    binding: BindingDefinition, queue: Queue | None, *, auto_delete: bool
) -> bool:
    """Whether a binding ends with the broker, as its queue does, and does not belong in the log.

    Args:
        queue: with the name of the destination, if there is one.
        auto_delete: its exchange is deleted with its last binding, so the binding decides how long that lives.
    """
    if binding.to_exchange or auto_delete:
        return False
    return queue is not None and queue.definition.transient
