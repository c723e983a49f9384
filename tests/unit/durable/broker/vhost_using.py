"""What clients of the state machine in test_vhost_machine.py do with messages, and the broker's periodic work."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from durable.broker.dead_lettering import DeadLettering
from durable.broker.peer import Peer
from durable.broker.upkeep import run_upkeep
from durable.errors import ExclusiveQueue, QueueInUse
from durable.protocol.properties import Properties
from durable.vhost.changes import CURSOR
from tests.vhost_members import READY, UNACKED, Published, Queue
from tests.vhosts import anybody, make_batch

from .vhost_driving import IDLE_S, PUBLISHERS, STEP_US, Session, run, serve
from .vhost_importing import Importing

TTLS_US = [None, None, None, None, 0, 3 * STEP_US, 8 * STEP_US]
OUTCOMES = st.sampled_from(["ack", "requeue", "requeue", "release", "reject", "reject"])


class Using(Importing):
    # Messages.

    @precondition(lambda self: self.model.routes.queues)
    @rule(
        name=st.sampled_from(PUBLISHERS), back=st.sampled_from([0, 0, 0, 2, 5]),
        count=st.integers(1, 6), size=st.sampled_from([4, 4, 15, 30]),
        priority=st.sampled_from([0, 0, 1, 2, 9]), ttl_us=st.sampled_from(TTLS_US),
        mandatory=st.booleans(), data=st.data(), together=st.booleans(), times=st.integers(1, 2),
        waits=st.booleans(), steps=st.sampled_from([0, 0, 0, 2, 5]),
        more=st.sampled_from(["", "", "", "", "cc", "bcc"]),
    )  # fmt: skip
    def publish(self, times: int, waits: bool, steps: int, **what: Any) -> None:
        """Publish after some time; with `waits` there is no commit, so the messages are not durable yet."""
        self.model.now_us += STEP_US * steps
        for _ in range(times):
            self.send(**what)
        if not waits:
            self.log.commit()

    def send(
        self, name: bytes, back: int, count: int, size: int, priority: int, ttl_us: int | None,
        mandatory: bool, data: st.DataObject, together: bool, more: str,
    ) -> None:  # fmt: skip
        """Send messages, the `back` last ones of those sent before once more."""
        keys = st.sampled_from(self.model.routes.queues)
        each = [data.draw(keys)] * count
        if not together and data.draw(st.booleans()):
            each = [data.draw(keys) for _ in range(count)]
        further: dict[str, Any] = {more: (data.draw(keys),)} if more else {}
        exchange = data.draw(st.sampled_from(["", "amq.fanout"] * 3 + self.exchanges()))
        first = max(0, self.following[name] - back)
        self.following[name] = max(self.following[name], first + count)
        there = self.publishers[name]
        payloads = [b"%c%03d" % (name[0], first + at) + bytes(size - 4) for at in range(count)]
        sent = [
            (
                at,
                Published(
                    one, key, exchange, priority, ttl_us, origin=(name, there.epoch, at), **further
                ),
            )
            for at, (key, one) in enumerate(zip(each, payloads, strict=True), first)
        ]
        where: dict[str, Any] = {
            "publisher": name, "epoch": there.epoch,
            "properties": Properties(exchange, priority, ttl_us, mandatory, **further),
        }  # fmt: skip
        parts = [sent] if together else [[one] for one in sent]
        batches = [
            make_batch(one[0][0], [what.payload for _, what in one], key=one[0][1].key, **where)
            for one in parts
        ]
        self.model.end = self.log.end
        refused = self.model.publish(name, parts, mandatory=mandatory)
        refusals = self.vhost.intake.publish(there, batches, anybody, self.model.now_us)
        assert sum(one.count for one in refusals) == refused
        assert self.model.end == self.log.end

    def exchanges(self) -> list[str]:
        """Return those of "x" and "y" that exist, and "y" in any case."""
        return [one for one in ("x", "x", "y") if self.model.routes.exchange(one)] + ["y"]

    @precondition(lambda self: self.model.streams)
    @rule(
        what=st.sampled_from(["capture", "capture", "capture", "cursor", "cursor", "forget"]),
        count=st.integers(1, 3), lost=st.sampled_from([0, 2]), data=st.data(), waits=st.booleans(),
    )  # fmt: skip
    def stream(self, what: str, count: int, lost: int, data: st.DataObject, waits: bool) -> None:
        if what == "capture":
            self.capture(count, lost)
        elif what == "cursor":
            self.store_cursor(data.draw(st.sampled_from(list(self.model.streams))), count)
        else:
            self.delete_cursor(data.draw(st.sampled_from(list(self.model.streams))))
        if not waits:
            self.log.commit()

    def capture(self, count: int, lost: int) -> None:
        """Capture messages published on the mesh; `lost` ones before them are missing."""
        first = self.captured + lost
        self.captured = first + count
        batch = make_batch(first, [b"t"] * count, key="t.1", publisher=b"m" * 16)
        self.model.end = self.log.end
        self.model.capture(Published(b"t", "t.1"), count, first, lost)
        self.vhost.capture(batch, lost, self.model.now_us)
        assert self.model.end == self.log.end

    def store_cursor(self, name: str, offset: int) -> None:
        self.model.streams[name].stored.append((self.log.end, "reader", offset))
        self.vhost.change([[CURSOR, name, "reader", offset]], self.model.now_us)

    def delete_cursor(self, name: str) -> None:
        stream = self.model.streams[name]
        there = "reader" in stream.cursors
        if there:
            stream.stored.append((self.log.end, "reader", None))
        assert self.call(0, "delete_cursor", None, stream=name, cursor="reader") is there

    def retain(self) -> None:
        """Apply retention, which removes whole records.

        The model does not know records: it only checks that enough is kept and that a second call removes nothing,
        and takes over the new start.
        """
        for name, stream in self.model.streams.items():
            there, limit = self.registry.stream(name), stream.definition.max_length
            there.retain(self.model.now_us)
            if there.start > stream.start:
                assert limit is not None
                assert there.end - there.start >= limit
            assert not there.retain(self.model.now_us)
            stream.start = there.start

    # Consumers and connections.

    @precondition(lambda self: self.model.queues)
    @rule(
        peer=st.integers(0, 1), data=st.data(), prefetch=st.sampled_from([1, 2, 5]),
        prefetch_bytes=st.sampled_from([0, 0, 20]), priority=st.sampled_from([0, 0, 5]),
        exclusive=st.sampled_from([False] * 5 + [True]),
    )  # fmt: skip
    def consume(self, peer: int, data: st.DataObject, **options: Any) -> None:
        queue = data.draw(st.sampled_from(list(self.model.queues.values())))
        if queue.owner in (None, self.peers[peer]):
            self.subscribe(self.peers[peer], queue, **options)
            return
        with pytest.raises(ExclusiveQueue):
            self.peers[peer].check_own(self.registry.queue(queue.definition.name))

    def subscribe(self, peer: Peer, queue: Queue, **options: Any) -> None:
        there = self.registry.queue(queue.definition.name)
        session = Session(self, peer, queue, there, **options)
        if not queue.takes(session):
            with pytest.raises(QueueInUse):
                there.subscribe(session.consumer)
            return
        there.subscribe(session.consumer)
        self.running.attach_consumer(session.consumer, session)
        queue.subscribe(session)
        self.turn()

    @precondition(lambda self: self.sessions())
    @rule(data=st.data(), paused=st.sampled_from([False, False, True]))
    def pause(self, data: st.DataObject, paused: bool) -> None:
        """Pause or resume a consumer, as when its tunnel is full or no longer full."""
        session = data.draw(st.sampled_from(self.sessions()))
        session.consumer.paused = session.paused = paused

    def in_use(self) -> list[Queue]:
        """Return the queues with messages that are ready or unacked."""
        queues, owners = self.model.queues.values(), (None, *self.peers)
        return [one for one in queues if one.owner in owners and one.those(READY, UNACKED)]

    @precondition(lambda self: self.in_use())
    @rule(
        data=st.data(), steps=st.lists(st.tuples(st.integers(0, 4), OUTCOMES), min_size=1, max_size=4),
        between=st.sampled_from(["nothing", "turn", "all"]),
    )  # fmt: skip
    def settle(self, data: st.DataObject, steps: list[tuple[int, str]], between: str) -> None:
        """Settle some tags in each step, or every other one; after each the pump has a turn, or all is committed."""
        queue = data.draw(st.sampled_from(self.in_use()))
        if not queue.consumers:  # Hypothesis leaves some rules out of a run.
            self.subscribe(queue.owner or self.peers[0], queue, prefetch=7)
        for count, outcome in steps:
            holding = [one for one in queue.consumers if queue.held_by(one)]
            if holding:
                session = data.draw(st.sampled_from(holding))
                held = sorted(one.tag for one in queue.held_by(session))
                start = data.draw(st.sampled_from(held))
                for at in [start] if count else held[::2]:
                    self.settle_some(session, at, count or 1, outcome)
            if between == "all":
                self.log.commit()
                self.dead_letter()
                self.log.commit()
            elif between == "turn":
                self.turn()

    def ack_every_other(self, queue: Queue) -> None:
        if not queue.consumers:
            self.subscribe(queue.owner or self.peers[0], queue, prefetch=7)
        for session in queue.consumers:
            for one in queue.held_by(session)[::2]:
                self.settle_some(session, one.tag, 1, "ack")

    def settle_some(self, session: Session, start: int, count: int, outcome: str) -> None:
        """Settle a range of tags, some of which may be settled already or not delivered yet."""
        held, queue = session.queue.held_by(session), session.queue
        found = [one for one in held if start <= one.tag < start + count]
        queue.settle(found, outcome)
        settle = session.there.settle
        assert settle(session.consumer, start, start + count, outcome) == len(found)

    @rule(
        what=st.sampled_from(["consumer", "consumer", "connection", "publisher", "purge", "again"]),
        data=st.data(),
    )  # fmt: skip
    def end(self, what: str, data: st.DataObject) -> None:
        """End a consumer, a connection or a publisher, purge a queue, or (`again`) redeclare a queue as it is."""
        owners = [peer for peer in (0, 1) if self.peers[peer].exclusive_lanes]
        if what == "connection":
            self.end_connection(data.draw(st.sampled_from(owners or [0, 1])))
        elif what == "publisher":
            name = data.draw(st.sampled_from(PUBLISHERS))
            self.begin_again(name, stops=data.draw(st.sampled_from([False, False, True])))
        elif what in ("purge", "again") and self.model.queues:
            queues, peer = list(self.model.queues.values()), data.draw(st.integers(0, 1))
            if what == "purge":
                self.purge(peer, data.draw(st.sampled_from(queues)).definition.name)
            else:
                ending = [one for one in queues if one.ending]
                self.declare_queue(peer, data.draw(st.sampled_from(ending or queues)).definition)
        elif self.sessions():
            outcome = data.draw(st.sampled_from(["requeue", "release"]))
            self.leave(data.draw(st.sampled_from(self.sessions())), outcome)

    def end_connection(self, peer: int) -> None:
        ended, self.peers[peer] = self.peers[peer], self.connect()
        for session in self.sessions():
            if session.peer is ended:
                self.leave(session, "requeue")
        for queue in list(self.model.queues.values()):
            if queue.owner is ended:
                queue.ending = (queue.died, lambda: False)
                self.model.end_queue(queue)
        run(self.running.delete_exclusive(ended.exclusive_lanes))

    # Periodic work

    @precondition(lambda self: self.model.dead)
    @rule()
    def dead_letter(self) -> None:
        """Dead-letter the dead, including those that had to make room for dead letters."""
        self.model.end = self.log.end
        while self.model.dead:
            self.model.dead_letter()
            if self.vhost.has_dead:
                serve(DeadLettering(self.running).run)
        assert not self.vhost.has_dead
        assert self.model.end == self.log.end

    @rule(ends=st.booleans())
    def upkeep(self, ends: bool) -> None:
        if ends:
            self.delete_due_queues()
        else:
            self.run_upkeep()

    def run_upkeep(self) -> None:
        """Expire messages and queues, and apply the retention of streams."""
        serve(partial(run_upkeep, self.running, IDLE_S), rounds=2)  # Queues go at the second look.
        for name in self.registry.queues:
            queue = self.model.queues[name]
            queue.expire(self.model.now_us)
            if queue.ending is None and not queue.is_used(self.model.now_us):
                queue.ending = (queue.died, partial(self.is_used, queue))
        self.retain()

    def is_used(self, queue: Queue) -> bool:
        return queue.is_used(self.model.now_us)

    def delete_due_queues(self) -> None:
        """Delete the queues that were to be deleted once their dead have moved on."""
        self.log.commit()
        for queue in list(self.model.queues.values()):
            self.model.end_queue(queue)
        for there in list(self.running.auto_deletions._deletions):
            run(self.running.auto_deletions.delete(there))
