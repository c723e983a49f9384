"""Half of the machine in test_vhost_machine.py: the pump, what is declared, and what has to agree.

The vhost is driven as the broker's sessions do it, with a log that is a list; nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.broker.control import Control
from durable.broker.hosted import Hosted
from durable.broker.peer import Peer
from durable.definition_forms import to_plain
from durable.definitions import (
    MEMORY,
    REJECT_PUBLISH,
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
from durable.log.record import Record
from durable.queues.consumers import Consumer
from durable.queues.lane import Lane
from durable.queues.queue import Delivery
from durable.queues.queue import Queue as BrokerQueue
from durable.vhost.deadletters import part_of
from tests.vhost_model import DYING, GONE, READY, UNACKED, Message, Model, Publisher, Queue, Stream
from tests.vhosts import PlainStore, PlainVhost

T = TypeVar("T")
PUBLISHERS = [b"p" * 16, b"q" * 16]
NOBODY: Any = None
NO_ERROR: type[Exception] | None = None
NOW: Any = SimpleNamespace(now_us=lambda: 0)
ANY_PATTERNS: Any = SimpleNamespace(check_patterns=lambda *_: None)

members = st.sampled_from(["a", "b", "c", "s"])
"""Names of queues, and two of them of streams, too."""
keys = st.sampled_from(["a", "b", "c", "s"])
exchanges = st.sampled_from(["x", "y"])
anywhere = st.sampled_from(["", "", "x", "y", "amq.fanout", "amq.fanout"])
definitions = st.builds(
    lambda letters, **fields: QueueDefinition(
        dead_letter_exchange=letters[0], dead_letter_routing_key=letters[1], **fields
    ),
    letters=st.sampled_from([(None, None), ("", "b"), ("", "s"), ("x", None), ("y", "c")]),
    name=members,
    durability=st.sampled_from(["disk", "disk", MEMORY]),
    exclusive=st.sampled_from([False, False, False, True]),
    auto_delete=st.booleans(),
    max_length=st.sampled_from([None, None, 4]),
    overflow=st.just(REJECT_PUBLISH),
)
exchange_definitions = st.builds(
    ExchangeDefinition,
    name=exchanges,
    type=st.sampled_from(["fanout", "fanout", "topic"]),
    alternate=st.sampled_from([None, None, "x", "y"]),
    auto_delete=st.booleans(),
    internal=st.sampled_from([False, False, False, True]),
)
streams = st.builds(
    StreamDefinition,
    name=st.sampled_from(["c", "s", "s"]),
    patterns=st.just(("t.>",)),
    max_length=st.sampled_from([None, 3]),
)
Wanted = QueueDefinition | ExchangeDefinition | StreamDefinition | BindingDefinition
bindings = st.builds(
    lambda exchange, to, key: BindingDefinition(
        exchange=exchange, destination=to[0], to_exchange=to[1], key=key
    ),
    st.sampled_from(["x", "y", "amq.fanout"]),
    st.tuples(members, st.just(False)) | st.tuples(exchanges, st.just(True)),
    keys | st.just("#"),
)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """To its end at once: here nothing has to be waited for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits for something")


class PlainLog(PlainStore):
    """What `Hosted` needs of a log."""

    failure = None
    on_commit: Callable[[], None]

    def commit(self) -> None:
        self.durable_end = self.end
        self.on_commit()

    async def with_room(self, attempt: Callable[[], T]) -> T:
        return attempt()

    async def durable(self, position: int) -> None:
        if position >= self.durable_end:
            self.commit()

    async def read(self, position: int, _limit: int) -> list[Record]:
        assert self.needed().get(position), "read for nobody, and could have been freed"
        return [self.records[position]]


class Session:
    """One consumer of a client that is slow to settle."""

    def __init__(
        self, machine: Declaring, peer: Peer, queue: Queue, there: BrokerQueue, prefetch: int
    ) -> None:
        self.consumer = Consumer("c", prefetch=prefetch, prefetch_bytes=0)
        self.machine, self.peer, self.queue, self.there = machine, peer, queue, there
        self.cancelled = False

    def receive(self, deliveries: list[Delivery]) -> None:
        self.machine.received += [(self, one) for one in deliveries]

    def cancel(self, _reason: str) -> None:
        self.cancelled = True


class Declaring(RuleBasedStateMachine):
    @initialize(
        queues=st.lists(definitions, min_size=2, max_size=4), streams=st.lists(streams, max_size=1),
        exchanges=st.lists(exchange_definitions, max_size=3), bound=st.lists(bindings, max_size=4),
        everything=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def begin(self, everything: bool, **wanted: list[Wanted]) -> None:
        """`everything`: is bound to amq.fanout."""
        self.model, self.captured = Model(), 0
        self.following = dict.fromkeys(PUBLISHERS, 0)
        """The next sequence that each has not used."""
        self.received: list[tuple[Session, Delivery]] = []
        self.start(PlainVhost((), PlainLog()))
        for publisher in PUBLISHERS:
            self.begin_again(publisher)
        for kind in ("exchanges", "queues", "streams", "bound"):
            for one in wanted[kind]:
                self.declare(0, one, same=False)
        for name in self.model.routes.queues if everything else ():
            self.bind(0, BindingDefinition(exchange="amq.fanout", destination=name))

    def start(self, plain: PlainVhost) -> None:
        log: Any = plain.store
        log.on_commit = self.committed
        self.log: PlainLog = log
        self.vhost, self.registry = plain.vhost, plain.registry
        self.hosted, self.plain = Hosted(plain.vhost, log, NOW), plain
        self.peers = [self.connect(), self.connect()]
        self.publishers = {
            name: self.vhost.publishers.open(name, one.epoch, 0)
            for name, one in self.model.publishers.items()
        }

    def connect(self) -> Peer:
        return Peer("shop", self.registry.permissions, b"")

    def call(
        self, peer: int, operation: str, error: type[Exception] | None, **arguments: Any
    ) -> Any:
        """What becomes of it; the model has done it before, as it is answered when it is on disk."""
        control = Control(self.hosted, self.peers[peer], ANY_PATTERNS, NOBODY)
        call = getattr(control, operation)(**arguments)
        if error is None:
            return run(call)
        with pytest.raises(error):
            run(call)
        return None

    # The pump.

    def committed(self) -> None:
        self.model.commit()
        self.turn()

    @rule()
    def turn(self) -> None:
        for there in self.registry.queues.values():
            self.hosted.wake(there)
        self.hosted.turn()
        received, self.received = self.received, []
        for session, got in sorted(received, key=lambda one: one[1].first):
            self.deliver(session, got)
        for queue in self.model.queues.values():
            hungry = [one for one in queue.consumers if self.has_credit(one)]
            assert not hungry or not queue.those(READY), "nobody waits for nothing"
        self.model.flush()

    def has_credit(self, session: Session) -> bool:
        return len(session.queue.held_by(session)) < session.consumer.prefetch

    def deliver(self, session: Session, got: Delivery) -> None:
        queue = session.queue
        messages = queue.those(READY)[: got.count]
        assert self.read(got.lane, got.first, got.count) == contents(messages)
        assert [one.returned for one in messages] == [got.returned] * got.count
        for at, one in enumerate(messages):
            assert self.has_credit(session)
            one.state, one.consumer, one.tag = UNACKED, session, got.tag + at

    def read(self, lane: Lane, first: int, count: int) -> list[tuple[bytes, str]]:
        found: list[tuple[bytes, str]] = []
        while len(found) < count:
            at = first + len(found)
            batch, start = run(self.hosted.batch(lane, at)) or NOBODY
            part = part_of(batch, start, at, first + count)
            found += [(payload, part.topic) for payload in part.payloads]
        return found

    @rule()
    def commit(self) -> None:
        self.log.commit()

    # What is declared.

    @rule(
        peer=st.integers(0, 1), wanted=definitions | exchange_definitions | streams | bindings,
        same=st.booleans(),
    )  # fmt: skip
    def declare(self, peer: int, wanted: Wanted, same: bool) -> None:
        """`same`: as it is there."""
        if isinstance(wanted, QueueDefinition):
            there = self.model.queues.get(wanted.name)
            self.declare_queue(peer, there.definition if same and there else wanted)
        elif isinstance(wanted, StreamDefinition):
            self.declare_stream(wanted)
        elif isinstance(wanted, ExchangeDefinition):
            self.declare_exchange(wanted)
        else:
            self.bind(peer, wanted)

    @rule(peer=st.integers(0, 1), data=st.data(), flags=st.tuples(st.booleans(), st.booleans()))
    def delete(self, peer: int, data: st.DataObject, flags: tuple[bool, bool]) -> None:
        kind = data.draw(st.sampled_from(["queue", "purge", "purge", "stream", "exchange", "bind"]))
        if kind == "queue":
            there = list(self.model.queues) or ["s"]
            self.delete_queue(peer, data.draw(st.sampled_from(there) | members), *flags)
        elif kind == "purge" and self.model.queues:
            self.purge(peer, data.draw(st.sampled_from(list(self.model.queues))))
        elif kind == "stream":
            self.delete_stream(data.draw(st.sampled_from(["c", "s"])))
        elif kind == "exchange":
            self.delete_exchange(data.draw(exchanges), flags[0])
        elif kind == "bind":
            bound = self.model.routes.bindings
            wanted = st.sampled_from(bound) | bindings if bound else bindings
            self.unbind(peer, data.draw(wanted))

    def declare_queue(self, peer: int, definition: QueueDefinition) -> None:
        model, name = self.model, definition.name
        there, error = model.queues.get(name), NO_ERROR
        if name in model.streams:
            error = DefinitionConflict
        elif there is None:
            model.add(name, Queue(definition, self.peers[peer] if definition.exclusive else None))
        elif there.owner not in (None, self.peers[peer]):
            error = ExclusiveQueue
        elif there.definition != definition:
            error = DefinitionConflict
        else:
            there.ending = None
        self.call(peer, "declare_queue", error, definition=to_plain(definition))

    def delete_queue(self, peer: int, name: str, if_empty: bool, if_unused: bool) -> None:
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
            one.state, one.written = GONE, (True, one.returned)
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

    # Those who use it.

    def begin_again(self, name: bytes) -> None:
        """Under its name, as a client that was started again."""
        before = self.model.publishers.get(name)
        epoch = self.vhost.publishers.next_epoch(name, 0, 0)
        assert before is None or epoch > before.epoch
        self.model.publishers[name] = Publisher(epoch)
        self.publishers[name] = self.vhost.publishers.open(name, epoch, 0)
        self.following[name] = 0

    def sessions(self) -> list[Session]:
        return [one for queue in self.model.queues.values() for one in queue.consumers]

    def leave(self, session: Session, outcome: str) -> None:
        """As the session of a consumer does at its end."""
        queue, there = session.queue, session.there
        self.hosted.detach_consumer(session.consumer)
        there.unsubscribe(session.consumer, 0, outcome)
        queue.consumers.remove(session)
        for one in queue.held_by(session):
            self.model.settle(queue, one, outcome)
        if queue.definition.auto_delete and not queue.consumers:
            queue.ending = (queue.died, True)
            self.model.end(queue)
        run(self.hosted.consumer_left(there))

    @invariant()
    def agrees(self) -> None:
        model, registry = self.model, self.registry
        assert registry.queues.keys() == model.queues.keys()
        assert registry.streams.keys() == model.streams.keys()
        for name, queue in model.queues.items():
            there = registry.queue(name)
            assert there.definition == queue.definition
            assert there.ready == len(queue.those(READY))
            assert there.unacked == len(queue.those(UNACKED))
            assert there.dead == len(queue.those(DYING))
            assert there.unsettled == model.unsettled(queue)
        for name, stream in model.streams.items():
            kept = registry.stream(name)
            assert (kept.start, kept.end) == (stream.start, len(stream.messages))
            assert kept.cursors == stream.cursors
            gaps = registry.gaps_between(kept.lane.id, 0, 1 << 62)
            told = [(one.offset, one.missed.first, one.missed.messages) for one in gaps]
            assert told == stream.gaps
        exchanges, bound = registry.router.definitions()
        assert {*exchanges} == {one for one in model.routes.exchanges if one.name in ("x", "y")}
        assert sorted(map(repr, bound)) == sorted(map(repr, model.routes.bindings))

    @invariant()
    def stored_once(self) -> None:
        for name, publisher in self.model.publishers.items():
            there = self.publishers[name]
            known = there.known(0, self.following[name]) if self.following[name] else ()
            stored = {at for one in known if one.stored for at in range(one.first, one.end)}
            assert stored == publisher.stored

    @invariant()
    def holds_in_memory_what_is_needed(self) -> None:
        queues = [one for one in self.model.queues.values() if one.definition.transient]
        if not any(one.those(READY, UNACKED, DYING) for one in queues):
            self.vhost.settling._release_held()
            assert not self.vhost.bodies.held_bytes


def contents(messages: list[Message]) -> list[tuple[bytes, str]]:
    return [(one.payload, one.key) for one in messages]
