"""A whole vhost, as its clients drive it, against plain lists: hypothesis chooses.

All kinds of queues and streams, exchanges in between, publishers that send again, dead letters,
connections that end, snapshots with what they free, and crashes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from durable.broker.burying import _bury
from durable.broker.peer import Peer
from durable.errors import ExclusiveQueue
from durable.vhost.changes import CURSOR
from durable.vhost.store import append_twice
from tests.vhost_model import READY, UNACKED, Queue
from tests.vhosts import anybody, make_batch, snapshot_of

from .vhost_declaring import PUBLISHERS, Declaring, Session, anywhere, contents, run


@settings(max_examples=500, stateful_step_count=80)
class Vhosts(Declaring):
    # Messages.

    @precondition(lambda self: self.model.routes.queues)
    @rule(
        name=st.sampled_from(PUBLISHERS), back=st.sampled_from([0, 0, 0, 2, 5]),
        count=st.integers(1, 3), exchange=anywhere, data=st.data(), together=st.booleans(),
        waits=st.booleans(),
    )  # fmt: skip
    def publish(
        self, name: bytes, back: int, count: int, exchange: str, data: st.DataObject,
        together: bool, waits: bool,
    ) -> None:  # fmt: skip
        """What has been sent before is sent again, from `back` on. What waits is not durable yet."""
        key = data.draw(st.sampled_from(self.model.routes.queues))
        first = max(0, self.following[name] - back)
        self.following[name] = max(self.following[name], first + count)
        publisher, refused = self.model.publishers[name], 0
        there = self.model.routes.exchange(exchange)
        payloads = [b"%c %d" % (name[0], first + at) for at in range(count)]
        for sequence, payload in enumerate(payloads, first):
            if sequence in publisher.stored:
                continue
            if there is None or there.internal:
                refused += 1
                continue
            stored, logged, full = self.model.store(exchange, key, payload)
            refused += full
            if stored:
                publisher.stored.add(sequence)
            if logged:
                publisher.written.add(sequence)
        where: Any = {"key": key, "exchange": exchange, "publisher": name, "epoch": publisher.epoch}
        batches = [make_batch(at, [one], **where) for at, one in enumerate(payloads, first)]
        if together:
            batches = [make_batch(first, payloads, **where)]
        refusals = self.vhost.publish(self.publishers[name], batches, anybody, 0)
        assert sum(one.count for one in refusals) == refused
        if not waits:
            self.log.commit()

    @precondition(lambda self: self.model.streams)
    @rule(
        what=st.sampled_from(["capture", "capture", "cursor", "retain"]), count=st.integers(1, 3),
        lost=st.sampled_from([0, 0, 2]), data=st.data(),
    )  # fmt: skip
    def stream(self, what: str, count: int, lost: int, data: st.DataObject) -> None:
        if what == "capture":
            self.capture(count, lost)
        elif what == "cursor":
            self.store_cursor(data.draw(st.sampled_from(list(self.model.streams))), count)
        else:
            self.retain()

    def capture(self, count: int, lost: int) -> None:
        """What somebody published on the mesh; what came before is missing."""
        first = self.captured + lost
        self.captured = first + count
        batch = make_batch(first, [b"t"] * count, key="t.1", publisher=b"m" * 16)
        for stream in self.model.streams.values():
            if lost:
                offset = len(stream.messages) + self.model.announced(stream)
                stream.gaps.append((offset, first - lost, lost))
            self.model.pending += [(stream, b"t", "t.1")] * count
        self.vhost.capture(batch, lost, 0)

    def store_cursor(self, name: str, offset: int) -> None:
        self.model.streams[name].cursors["reader"] = offset
        self.vhost.change([[CURSOR, name, "reader", offset]], 0)

    def retain(self) -> None:
        """By whole records, of which the model knows nothing: never too much, and then no more."""
        for name, stream in self.model.streams.items():
            there, limit = self.registry.stream(name), stream.definition.max_length
            if there.retain(0):
                assert limit is not None
                assert there.end - there.start >= limit
            assert not there.retain(0)
            stream.start = there.start

    # Consumers and connections.

    @precondition(lambda self: self.model.queues)
    @rule(peer=st.integers(0, 1), data=st.data(), prefetch=st.sampled_from([1, 3, 7]))
    def consume(self, peer: int, data: st.DataObject, prefetch: int) -> None:
        queue = data.draw(st.sampled_from(list(self.model.queues.values())))
        if queue.owner in (None, self.peers[peer]):
            self.subscribe(self.peers[peer], queue, prefetch)
            return
        with pytest.raises(ExclusiveQueue):
            self.peers[peer].check_own(self.registry.queue(queue.definition.name))

    def subscribe(self, peer: Peer, queue: Queue, prefetch: int) -> None:
        there = self.registry.queue(queue.definition.name)
        session = Session(self, peer, queue, there, prefetch)
        there.subscribe(session.consumer)
        self.hosted.attach_consumer(session.consumer, session)
        queue.consumers.append(session)
        self.turn()

    @rule(
        what=st.sampled_from(["consumer", "consumer", "connection", "queues", "publisher"]),
        data=st.data(),
    )  # fmt: skip
    def end(self, what: str, data: st.DataObject) -> None:
        if what == "connection":
            self.end_connection(data.draw(st.integers(0, 1)))
        elif what == "queues":
            self.end_queues()
        elif what == "publisher":
            self.begin_again(data.draw(st.sampled_from(PUBLISHERS)))
        elif self.sessions():
            outcome = data.draw(st.sampled_from(["requeue", "release"]))
            self.leave(data.draw(st.sampled_from(self.sessions())), outcome)

    def in_use(self) -> list[Queue]:
        """Queues of which something is ready or held."""
        queues, owners = self.model.queues.values(), (None, *self.peers)
        return [one for one in queues if one.owner in owners and one.those(READY, UNACKED)]

    @precondition(lambda self: self.in_use())
    @rule(
        data=st.data(), count=st.integers(1, 4),
        outcome=st.sampled_from(["ack", "requeue", "release", "reject", "reject"]),
    )  # fmt: skip
    def settle(self, data: st.DataObject, count: int, outcome: str) -> None:
        queue = data.draw(st.sampled_from(self.in_use()))
        if not queue.those(UNACKED):  # Hypothesis leaves out some rules each time.
            self.subscribe(queue.owner or self.peers[0], queue, 7)
        session = data.draw(st.sampled_from(queue.consumers))
        held = sorted(session.queue.held_by(session), key=lambda one: one.tag)
        start = data.draw(st.sampled_from([one.tag for one in held] or [0]))
        found = [one for one in held if start <= one.tag < start + count]
        for one in found:
            self.model.settle(session.queue, one, outcome)
        settle = session.there.settle
        assert settle(session.consumer, start, start + count, outcome) == len(found)

    @precondition(lambda self: self.model.graves)
    @rule()
    def bury(self) -> None:
        self.model.bury()
        for dead in self.vhost.take_dead():
            run(_bury(self.hosted, dead))

    def end_queues(self) -> None:
        """Those that were to go when their dead have moved on."""
        self.log.commit()
        for queue in list(self.model.queues.values()):
            self.model.end(queue)
        for there in list(self.hosted.endings._endings):
            run(self.hosted.endings.end(there))

    def end_connection(self, peer: int) -> None:
        ended, self.peers[peer] = self.peers[peer], self.connect()
        for session in self.sessions():
            if session.peer is ended:
                self.leave(session, "requeue")
        for queue in list(self.model.queues.values()):
            if queue.owner is ended:
                queue.ending = (queue.died, False)
                self.model.end(queue)
        run(self.hosted.delete_exclusive(ended.exclusive))

    # The log.

    @rule(durable=st.booleans())
    def snapshot(self, durable: bool) -> None:
        """And what it makes superfluous is given up, as the checkpointer does it."""
        self.turn()
        start = self.hosted.applied_end
        append_twice(self.log, snapshot_of(self.vhost))
        for publisher in self.model.publishers.values():
            publisher.written |= publisher.stored
        if durable:
            self.log.commit()
            needed = self.log.needed()
            for position in [one for one in self.log.records if one < start]:
                if position not in needed:
                    del self.log.records[position]

    @rule(settled=st.booleans())
    def crash(self, settled: bool) -> None:
        """`settled`: with nothing on its way, so that what the log needs is the same on both sides."""
        if settled:
            for _ in range(2):  # Settlements travel with the next commit.
                self.log.commit()
        needed = self.log.needed()
        self.model.crash()
        self.start(self.plain.restarted())
        if settled:
            assert self.log.needed() == needed
        for name, queue in self.model.queues.items():
            (lane,) = self.registry.queue(name).lanes
            ready, at = queue.those(READY), 0
            for first, end in lane.ready_ranges():
                some = ready[at : at + end - first]
                assert self.read(lane, first, end - first) == contents(some)
                at += end - first
        for name, stream in self.model.streams.items():
            there = self.registry.stream(name)
            count = there.end - there.start
            assert self.read(there.lane, there.start, count) == stream.messages[there.start :]


TestVhosts = Vhosts.TestCase
TestVhosts.pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # type: ignore[attr-defined]
