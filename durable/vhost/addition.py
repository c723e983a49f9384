"""A large import: built beside a registry a little at a time, then added to it at once.

So nobody sees half of an import. Between the first step and `apply`, nothing may be declared or deleted,
because the addition was built on the state of the registry at its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator

from mesh.names import check_existing_pattern
from mesh.protocol.interest import Interest

from ..definition_forms import to_plain
from ..definitions import (
    BindingDefinition,
    Definitions,
    QueueDefinition,
    StreamDefinition,
)
from ..log.bodies import encode_definitions, join_definitions
from ..queues.lane import Lane
from ..queues.queue import Queue
from ..routing.permissions import Permissions
from ..turns import some_at_once
from . import changes
from .changes import Change
from .registry import Registry, is_transient_binding
from .stream import Stream


class Addition:
    """Definitions to be added to one registry. Made by `build_addition`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.queues: dict[str, Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.lanes: dict[int, Lane] = {}
        self.owners: dict[int, Queue | Stream] = {}
        self.extension = registry.router.extension()
        self.permissions = Permissions()
        self.captures: Interest[Stream] | None = None
        """The new trie, with the streams that are there as well; None if the addition captures nothing."""
        self.patterns: Counter[str] = Counter()
        self._expiring: list[Queue] = []
        self._packed = bytearray()
        self._packed_count = 0

    def encode(self) -> bytes:
        """Return the body of one record with all changes that belong in the log; empty if there are none."""
        return (
            join_definitions([memoryview(self._packed)], self._packed_count)
            if self._packed_count
            else b""
        )

    def apply(self, now_us: int) -> None:
        """Add everything to the registry; from now on it is declared."""
        registry = self._registry
        registry.lanes.update(self.lanes)
        registry.owners.update(self.owners)
        registry.queues.update(self.queues)
        registry.streams.update(self.streams)
        registry.router.extend(self.extension)
        registry.permissions.extend(self.permissions)
        if self.captures is not None:
            registry.captures = self.captures
            registry.patterns.update(self.patterns)
        for queue in self._expiring:  # The time until an unused queue expires begins.
            queue.note_use(now_us)

    def _add_members(self, some: Iterable[QueueDefinition | StreamDefinition]) -> None:
        for definition in some:
            ids = self._registry.new_lanes(definition)
            if isinstance(definition, QueueDefinition):
                self._add_queue(definition, ids)
            else:
                self._add_stream(definition, *ids)
            self.extension.queues[definition.name] = None

    def _add_queue(self, definition: QueueDefinition, ids: list[int]) -> None:
        lanes = [self._registry.make_lane(one) for one in ids]
        queue = self.queues[definition.name] = Queue(definition, lanes)
        self.lanes.update(zip(ids, lanes, strict=True))
        self.owners.update(dict.fromkeys(ids, queue))
        if definition.expires_s is not None:
            self._expiring.append(queue)
        if not definition.transient:
            self._write([changes.QUEUE, ids, to_plain(definition)])

    def _add_stream(self, definition: StreamDefinition, lane_id: int) -> None:
        lane = self.lanes[lane_id] = self._registry.make_lane(lane_id)
        self.streams[definition.name] = self.owners[lane_id] = Stream(definition, lane)
        self.patterns.update(definition.patterns)
        self._write([changes.STREAM, lane_id, to_plain(definition)])

    def _add_bindings(self, some: Iterable[BindingDefinition]) -> None:
        self.extension.bind(some)
        for binding in some:
            if not self._is_transient(binding):
                self._write([changes.BIND, to_plain(binding)])

    def _is_transient(self, binding: BindingDefinition) -> bool:
        name = binding.destination
        queue = self.queues.get(name) or self._registry.queues.get(name)
        exchange = self.extension.exchanges[binding.exchange].definition
        return is_transient_binding(binding, queue, auto_delete=exchange.auto_delete)

    def _build_captures(self) -> Iterator[None]:
        """Build a new trie: added to the existing one, streams that are not declared yet would capture
        messages."""
        self.captures = Interest()
        for streams in (self._registry.streams, self.streams):
            for some in some_at_once(list(streams.values())):
                for stream in some:
                    for pattern in stream.definition.patterns:
                        self.captures.add(check_existing_pattern(pattern), stream)
                yield

    def _write(self, change: Change) -> None:
        self._packed += encode_definitions(change)
        self._packed_count += 1


def build_addition(registry: Registry, new: Definitions) -> Generator[None, None, Addition]:
    """Build the addition; yields where other tasks may run.

    Args:
        new: checked together with what is declared already, and none of it is there yet.
    """
    addition = Addition(registry)
    for exchanges in some_at_once(new.exchanges):
        addition.extension.declare(exchanges)
        for exchange in exchanges:
            addition._write([changes.EXCHANGE, to_plain(exchange)])
        yield
    all_members: tuple[QueueDefinition | StreamDefinition, ...] = (*new.queues, *new.streams)
    for members in some_at_once(all_members):
        addition._add_members(members)
        yield
    yield from addition.extension.copy(dict.fromkeys(one.exchange for one in new.bindings))
    for bindings in some_at_once(new.bindings):
        addition._add_bindings(bindings)
        yield
    for permissions in some_at_once(new.permissions):
        for permission in permissions:
            addition.permissions.declare(permission)
            for change in changes.permission(permission):
                addition._write(change)
        yield
    if addition.patterns:
        yield from addition._build_captures()
    return addition
