"""The vhost that the state machine in test_vhost_machine.py drives: its log, its pump, and the invariants.

It is driven as the broker's sessions do it, with a log that is a list; nothing waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from trio.testing import MockClock

from durable.broker.body_reader import BodyReader
from durable.broker.control import Control
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.log.placing import Backlog
from durable.log.record import Buffer, Draft, Record
from durable.protocol.properties import Death, decode_properties
from durable.queues.consumers import Consumer
from durable.queues.lane import Lane
from durable.queues.queue import Delivery
from durable.queues.queue import Queue as BrokerQueue
from durable.vhost.bodies import Bodies
from durable.vhost.checkpointing import Checkpointing
from durable.vhost.groups import part_of
from tests.vhost_members import DYING, READY, UNACKED, Message, Publisher, Queue
from tests.vhost_model import Model
from tests.vhosts import AnyStreams, PlainStore, PlainVhost, batch_at

T = TypeVar("T")
STEP_US = 60_000
IDLE_S = 1.0
READ_RECORDS = 2
PUBLISHERS = [b"p" * 16, b"q" * 16]
NOBODY: Any = None
NO_ERROR: type[Exception] | None = None
ANY_PATTERNS: Any = SimpleNamespace(stream_check=lambda *_: AnyStreams())
Content = tuple[bytes, str, tuple[Death, ...]]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits for something")


def serve(task: Callable[[], Awaitable[None]], *, rounds: int = 1) -> None:
    """Run one of the broker's tasks for some of its rounds; the virtual clock advances when it waits."""

    async def round_() -> None:
        with trio.move_on_after(IDLE_S * (rounds + 0.5)):
            await task()

    trio.run(round_, clock=MockClock(autojump_threshold=0))


def contents(messages: list[Message]) -> list[Content]:
    return [(one.what.payload, one.what.key, one.what.deaths) for one in messages]


class PlainLog(PlainStore):
    """A log as `RunningVhost` needs it."""

    failure = cipher = None
    full = True  # Compaction then waits for no budget.
    backlog = Backlog()
    on_commit: Callable[[], None]

    def commit(self) -> None:
        self.durable_end = self.end
        self.on_commit()

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """As compaction does with each record that it has carried forward."""
        assert count == 1
        self.release_each(range(position, position + 1), size_bytes)

    async def append(self, drafts: Sequence[Draft]) -> range:
        return self.append_nowait(drafts)

    async def with_room(self, attempt: Callable[[], T]) -> T:
        return attempt()

    async def wait_durable(self, position: int) -> None:
        if position >= self.durable_end:
            self.commit()

    async def read(self, position: int, _limit_bytes: int) -> list[Record]:
        """Skip missing records, as `Log.read` does; return so few that other tasks run before the next read."""
        return [self.records[at] for at in sorted(self.records) if at >= position][:READ_RECORDS]


class NeededBodyReader(BodyReader):
    def __init__(self, log: PlainLog, bodies: Bodies) -> None:
        super().__init__(log.read, bodies)
        self._log = log

    async def body(self, position: int) -> Buffer | None:
        assert self._log.needed().get(position), "read for nobody, and could have been freed"
        return await super().body(position)


class Session:
    """One consumer of a client that settles slowly."""

    def __init__(
        self, machine: Driving, peer: Peer, queue: Queue, there: BrokerQueue, *, prefetch: int,
        prefetch_bytes: int = 0, priority: int = 0, exclusive: bool = False,
    ) -> None:  # fmt: skip
        self.prefetch, self.prefetch_bytes = prefetch, prefetch_bytes
        self.priority, self.exclusive = priority, exclusive
        self.consumer = Consumer(
            "c", prefetch=prefetch, prefetch_bytes=prefetch_bytes, priority=priority,
            exclusive=exclusive,
        )  # fmt: skip
        self.machine, self.peer, self.queue, self.there = machine, peer, queue, there
        self.cancelled = self.paused = False

    def receive(self, deliveries: list[Delivery]) -> None:
        self.machine.received += [(self, one) for one in deliveries]

    def cancel(self, _reason: str) -> None:
        self.cancelled = True


class Driving(RuleBasedStateMachine):
    def begin_empty(self) -> None:
        self.model, self.captured = Model(), 0
        self.following = dict.fromkeys(PUBLISHERS, 0)
        """By publisher: the next unused sequence."""
        self.received: list[tuple[Session, Delivery]] = []
        self.start(PlainVhost((), PlainLog()))
        for publisher in PUBLISHERS:
            self.begin_again(publisher, stops=publisher == PUBLISHERS[1])

    def start(self, plain: PlainVhost) -> None:
        log: Any = plain.store
        log.on_commit = self.committed
        self.log: PlainLog = log
        self.vhost, self.registry, self.files = plain.vhost, plain.registry, plain.files
        clock: Any = SimpleNamespace(now_us=lambda: self.model.now_us)
        self.running, self.plain = RunningVhost(plain.vhost, log, clock), plain
        self.running.batch_reader._body_reader = NeededBodyReader(log, plain.vhost.bodies)
        self.checkpointing = Checkpointing(plain.registry)
        self.peers = [self.connect(), self.connect()]
        self.publishers = {
            name: self.vhost.publishers.open(name, one.epoch, 0, stops=one.stops)
            for name, one in self.model.publishers.items()
        }

    def connect(self) -> Peer:
        return Peer("shop", self.registry.permissions, b"")

    def begin_again(self, name: bytes, *, stops: bool) -> None:
        """Open a publisher again under its name, as a client does that was restarted."""
        before = self.model.publishers.get(name)
        epoch = self.vhost.publishers.next_epoch(name, 0, 0)
        assert before is None or epoch > before.epoch
        self.model.publishers[name] = Publisher(epoch, stops)
        self.publishers[name] = self.vhost.publishers.open(name, epoch, 0, stops=stops)
        self.following[name] = 0

    def call(
        self, peer: int, operation: str, error: type[Exception] | None, **arguments: Any
    ) -> Any:
        """Make a call and return its result, or check that it raises `error`.

        The model is changed before, as it would be when the call is answered, with the change on disk.
        """
        control = Control(self.running, self.peers[peer], ANY_PATTERNS, NOBODY)
        call = getattr(control, operation)(**arguments)
        if error is None:
            return run(call)
        with pytest.raises(error):
            run(call)
        return None

    # The pump

    @rule(steps=st.integers(1, 4))
    def time_goes_on(self, steps: int) -> None:
        """Advance the clock by more than the span of a mark, so that recorded times are exact."""
        self.model.now_us += STEP_US * steps

    @rule(durable=st.booleans())
    def pump(self, durable: bool) -> None:
        if durable:
            self.log.commit()
        else:
            self.turn()

    def committed(self) -> None:
        self.model.commit()
        self.turn()

    def turn(self) -> None:
        for there in self.registry.queues.values():
            self.running.wake(there)
        self.model.end = self.log.end
        self.running.pump_once()
        received, self.received = self.received, []
        for name, there in self.registry.queues.items():
            queue = self.model.queues.get(name)
            if queue is not None:  # It is just being deleted otherwise.
                self.take(queue, there, [one for one in received if one[0].queue is queue])
        self.model.flush()
        assert self.model.end == self.log.end, "one record of all that was settled"

    def take(
        self, queue: Queue, there: BrokerQueue, received: list[tuple[Session, Delivery]]
    ) -> None:
        lanes = there.lanes[::-1]
        for session, got in sorted(
            received, key=lambda one: (lanes.index(one[1].lane), one[1].first)
        ):
            queue.expire(self.model.now_us)
            self.deliver(queue, session, got)
        queue.expire(self.model.now_us)
        hungry = [one for one in queue.consumers if queue.is_hungry(one)]
        assert not hungry or not queue.those(READY), "nobody waits for nothing"

    def deliver(self, queue: Queue, session: Session, got: Delivery) -> None:
        assert queue.whose_turn() is session
        messages = queue.those(READY)[: got.count]
        assert self.read(got.lane, got.first, got.count) == contents(messages)
        assert [one.returned for one in messages] == [got.returned] * got.count
        for at, one in enumerate(messages):
            assert queue.is_hungry(session)
            one.state, one.consumer, one.tag = UNACKED, session, got.tag + at
        queue.counts["delivered"] += got.count

    def read(self, lane: Lane, first: int, count: int) -> list[Content]:
        return trio.run(self._read, lane, first, count) if count else []

    async def _read(self, lane: Lane, first: int, count: int) -> list[Content]:
        found: list[Content] = []
        while len(found) < count:
            at = first + len(found)
            there = await batch_at(self.running, lane, at)
            assert there is not None, "what is delivered can be read"
            part = part_of(*there, at, first + count)
            deaths = decode_properties(part.shared_headers).deaths
            found += [(bytes(payload), part.topic, deaths) for payload in part.payloads]
        return found

    # Consumers

    def sessions(self) -> list[Session]:
        return [one for queue in self.model.queues.values() for one in queue.consumers]

    def leave(self, session: Session, outcome: str) -> None:
        """Detach a consumer as its session does at its end."""
        queue, there = session.queue, session.there
        self.running.detach_consumer(session.consumer)
        there.unsubscribe(session.consumer, self.model.now_us, outcome)
        queue.unsubscribe(session, self.model.now_us, outcome)
        if queue.definition.auto_delete and not queue.consumers:
            queue.ending = (queue.died, lambda: bool(queue.consumers))
            self.model.end_queue(queue)
        run(self.running.consumer_left(there))

    # Invariants

    @invariant()
    def queues_agree(self) -> None:
        assert self.registry.queues.keys() == self.model.queues.keys()
        for name, queue in self.model.queues.items():
            there, ready = self.registry.queue(name), queue.those(READY)
            assert there.definition == queue.definition
            assert there.ready == len(ready)
            assert there.ready_bytes == sum(one.size_bytes for one in ready)
            assert there.unacked == len(queue.those(UNACKED))
            assert there.dead == len(queue.those(DYING))
            assert there.unsettled == self.model.unsettled(queue)
            left = queue.those(READY, UNACKED, DYING)
            assert there.size_bytes == sum(one.size_bytes for one in left)
            assert (there in self.running.auto_deletions) == (queue.ending is not None)
            assert there.idle_since_us() == (None if queue.consumers else queue.used_us)
            single = queue.definition.single_active_consumer
            for one in queue.consumers:
                active = there.consumers.active if single else one.consumer
                assert (one.consumer is active) == queue.is_active(one)
            counted = there.counts
            moved = {"published": counted.published, "delivered": counted.delivered}
            moved |= {"acked": counted.acked, **counted.dropped}
            assert moved == {"published": 0, "delivered": 0, "acked": 0, **queue.counts}

    @invariant()
    def streams_agree(self) -> None:
        assert self.registry.streams.keys() == self.model.streams.keys()
        for name, stream in self.model.streams.items():
            kept = self.registry.stream(name)
            assert (kept.start, kept.end) == (stream.start, len(stream.messages))
            assert kept.cursors == stream.cursors
            gaps = self.registry.gaps.between(kept.lane.id, 0, 1 << 62)
            told = [(one.offset, one.missed.first, one.missed.messages) for one in gaps]
            assert told == [gap for _, gap in stream.gaps]

    @invariant()
    def routes_agree(self) -> None:
        exchanges, bound = self.registry.router.definitions()
        routes = self.model.routes
        assert {*exchanges} == {one for one in routes.exchanges if one.name in ("x", "y")}
        assert sorted(map(repr, bound)) == sorted(map(repr, routes.bindings))

    @invariant()
    def permissions_agree(self) -> None:
        there = {one.cluster: one for one in self.registry.permissions.definitions()}
        assert there == self.model.permissions

    @invariant()
    def stored_once(self) -> None:
        for name, publisher in self.model.publishers.items():
            there = self.publishers[name]
            known = there.known_ranges(0, self.following[name]) if self.following[name] else ()
            stored = {at for one in known if one.stored for at in range(one.first, one.end)}
            assert stored == publisher.stored

    @invariant()
    def confirmed_is_what_is_on_disk(self) -> None:
        """Check that everything confirmed is on disk, refused or in memory only.

        Once everything is on disk, everything sent is confirmed.
        """
        for name, publisher in self.model.publishers.items():
            waits = [one for one, at in publisher.records.items() if at >= self.log.durable_end]
            confirmed = self.publishers[name].confirmed
            assert confirmed <= min(waits, default=confirmed)
            if self.log.durable_end == self.log.end:
                assert confirmed >= publisher.sent_end

    @invariant()
    def counts_agree(self) -> None:
        there, counts = self.vhost.intake.counts, self.model.counts
        assert there.received == counts["received"]
        assert there.duplicates == counts["duplicates"]
        assert there.dropped == counts["dropped"]
        assert there.refused == counts["refused"]

    @invariant()
    def holds_in_memory_what_is_needed(self) -> None:
        queues = [one for one in self.model.queues.values() if one.definition.transient]
        if not any(one.those(READY, UNACKED, DYING) for one in queues):
            self.vhost.settling.release_held()
            assert not self.vhost.bodies.held_bytes
