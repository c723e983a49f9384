"""Declarations and deletions by the two connections of the state machine in test_vhost_machine.py."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import (
    DefinitionConflict,
    ExclusiveQueue,
    InUse,
    UnknownExchange,
    UnknownQueue,
    UnknownStream,
)
from tests.vhost_members import GONE, READY, Queue, Stream

from .vhost_definitions import (
    Wanted,
    bindings,
    definitions,
    exchange_definitions,
    streams,
)
from .vhost_driving import NO_ERROR, Driving


class Declaring(Driving):
    @initialize(
        queues=st.lists(definitions, min_size=2, max_size=4), streams=st.lists(streams, min_size=1, max_size=1),
        exchanges=st.lists(exchange_definitions, max_size=3), bound=st.lists(bindings, max_size=4),
        everything=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def begin(self, everything: bool, **wanted: list[Wanted]) -> None:
        """`everything`: whether all queues and streams are bound to amq.fanout."""
        self.begin_empty()
        for kind in ("exchanges", "queues", "streams", "bound"):
            for one in wanted.get(kind, []):
                self.declare(0, one, same=False)
        for name in self.model.routes.queues if everything else ():
            self.bind(0, BindingDefinition(exchange="amq.fanout", destination=name))

    # Declarations

    def declare(self, peer: int, wanted: Wanted, same: bool) -> None:
        """`same`: a queue that exists is declared with its present definition."""
        if isinstance(wanted, QueueDefinition):
            there = self.model.queues.get(wanted.name)
            self.declare_queue(peer, there.definition if same and there else wanted)
        elif isinstance(wanted, StreamDefinition):
            self.declare_stream(wanted)
        elif isinstance(wanted, ExchangeDefinition):
            self.declare_exchange(wanted)
        else:
            self.bind(peer, wanted)

    def declare_queue(self, peer: int, definition: QueueDefinition) -> None:
        model, name = self.model, definition.name
        there, error = model.queues.get(name), NO_ERROR
        if name in model.streams:
            error = DefinitionConflict
        elif there is None:
            owner = self.peers[peer] if definition.exclusive else None
            model.add(name, Queue(definition, owner, model.dead, model.now_us))
        elif there.owner not in (None, self.peers[peer]):
            error = ExclusiveQueue
        elif there.definition != definition:
            error = DefinitionConflict
        else:
            there.ending, there.used_us = None, model.now_us
        self.call(peer, "declare_queue", error, definition=to_plain(definition))

    def delete_queue(self, peer: int, name: str, *, if_empty: bool, if_unused: bool) -> None:
        model, error, ready = self.model, NO_ERROR, None
        queue = model.queues.get(name)
        if name in model.streams:
            error = UnknownQueue
        elif queue is not None and queue.owner not in (None, self.peers[peer]):
            error = ExclusiveQueue
        elif queue is not None and (
            (if_empty and model.unsettled(queue)) or (if_unused and queue.consumers)
        ):
            error = InUse
        elif queue is not None:
            ready = len(queue.those(READY))
            model.remove(name)
        flags = {"if_empty": if_empty, "if_unused": if_unused}
        assert self.call(peer, "delete_queue", error, name=name, **flags) == ready
        if queue is not None and error is None:
            for session in list(queue.consumers):
                assert session.cancelled
                self.leave(session, "requeue")

    def purge(self, peer: int, name: str) -> None:
        queue = self.model.queues[name]
        if queue.owner not in (None, self.peers[peer]):
            self.call(peer, "purge_queue", ExclusiveQueue, name=name)
            return
        ready = queue.those(READY)
        for one in ready:
            one.state = GONE
            one.say_settled(self.log.end)
        assert self.call(peer, "purge_queue", None, name=name) == len(ready)

    def declare_stream(self, definition: StreamDefinition) -> None:
        name = definition.name
        model, there, error = self.model, self.model.streams.get(name), NO_ERROR
        if name in model.queues or (there is not None and there.definition != definition):
            error = DefinitionConflict
        elif there is None:
            model.add(name, Stream(definition))
        self.call(0, "declare_stream", error, definition=to_plain(definition))

    def delete_stream(self, name: str) -> None:
        there: bool | None = name in self.model.streams
        error = NO_ERROR
        if there:
            self.model.remove(name)
        elif name in self.model.queues:
            there, error = None, UnknownStream
        assert self.call(0, "delete_stream", error, name=name) is there

    def declare_exchange(self, definition: ExchangeDefinition) -> None:
        routes = self.model.routes
        there, error = routes.exchange(definition.name), NO_ERROR
        if there is None:
            routes.exchanges.append(definition)
        elif there != definition:
            error = DefinitionConflict
        self.call(0, "declare_exchange", error, definition=to_plain(definition))

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        routes = self.model.routes
        there, error = routes.exchange(name), NO_ERROR
        if if_unused and any(one.exchange == name for one in routes.bindings):
            error = InUse
        elif there is not None:
            routes.exchanges.remove(there)
            routes.settle(set())
        said = self.call(0, "delete_exchange", error, name=name, if_unused=if_unused)
        assert error or said is (there is not None)

    def owned_by_another(self, peer: int, binding: BindingDefinition) -> bool:
        queue = None if binding.to_exchange else self.model.queues.get(binding.destination)
        return queue is not None and queue.owner not in (None, self.peers[peer])

    def bind(self, peer: int, binding: BindingDefinition) -> None:
        routes, error = self.model.routes, NO_ERROR
        ends = [binding.exchange, *([binding.destination] if binding.to_exchange else [])]
        if not all(map(routes.exchange, ends)):
            error = UnknownExchange
        elif not binding.to_exchange and binding.destination not in routes.queues:
            error = UnknownQueue
        elif self.owned_by_another(peer, binding):
            error = ExclusiveQueue
        elif routes.find(binding) is None:
            routes.bindings.append(binding)
        self.call(peer, "bind", error, definition=to_plain(binding))

    def unbind(self, peer: int, binding: BindingDefinition) -> None:
        routes, error = self.model.routes, NO_ERROR
        there = routes.find(binding)
        if there is not None and self.owned_by_another(peer, binding):
            error = ExclusiveQueue
        elif there is not None:
            routes.bindings.remove(there)
            routes.settle({binding.exchange})
        said = self.call(peer, "unbind", error, definition=to_plain(binding))
        assert error or said is (there is not None)
