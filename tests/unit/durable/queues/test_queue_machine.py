"""The whole queue against a plain list of messages, crashes included: hypothesis chooses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from durable.definitions import DROP_HEAD, REJECT_PUBLISH, QueueDefinition
from durable.errors import QueueInUse
from durable.queues.consumers import Consumer
from durable.queues.journal import DeadRange, Journal
from durable.queues.lane import Lane
from durable.queues.queue import Delivery, Queue
from durable.queues.runs import Run
from tests.queues import (
    DYING,
    READY,
    SETTLED,
    UNACKED,
    Message,
    Model,
    encoded,
    positions_of,
)

LANE_ID = 100
LogEntry = tuple[str, int, Any]

definitions = st.builds(
    QueueDefinition,
    name=st.just("orders"),
    max_priority=st.sampled_from([0, 0, 2, 9]),
    max_length=st.sampled_from([None, None, 4, 9]),
    max_length_bytes=st.sampled_from([None, None, 60]),
    overflow=st.sampled_from([DROP_HEAD, REJECT_PUBLISH]),
    ttl_s=st.sampled_from([None, None, 0.1, 0.3]),
    dead_letter_exchange=st.sampled_from([None, "dead"]),
    delivery_limit=st.sampled_from([None, 0, 1, 2]),
    single_active_consumer=st.sampled_from([False, False, True]),
)


@settings(max_examples=500)
class QueueMachine(RuleBasedStateMachine):
    @initialize(definition=definitions)
    def declare(self, definition: QueueDefinition) -> None:
        self.model = Model(definition)
        self.now_us = 1_000_000
        self.log: list[LogEntry] = []
        self.checkpoint: tuple[int, list[tuple[bytes, bytes]]] = (0, [])
        self.position = self.consumers_ever = 0
        self.announced: list[tuple[Lane, Run, int]] = []
        self.recover()

    def recover(self) -> None:
        """A queue as a restarted broker makes it: the checkpoint, and the log from there on."""
        definition, self.journal = self.model.definition, Journal()
        lanes = [
            Lane(LANE_ID + at, self.journal, logged=True)
            for at in range(definition.max_priority + 1)
        ]
        self.queue = queue = Queue(definition, lanes)
        self.model.dropped.clear()
        start, saved = self.checkpoint
        for lane, (enqueued, settled) in zip(lanes, saved, strict=False):
            lane.load(enqueued, settled)
        for kind, number, what in self.log[start:]:
            lane = lanes[number]
            if kind == "run":
                run, time_us, expires_us = what
                self.enqueue(lane, run, time_us, expires_us)
            elif kind == "moved":
                lane.move(*what)
            elif kind == "returned":
                lane.add_returns(what)
            for start, end in what if kind == "settled" else ():
                lane.settle(start, end, recorded=True)
        queue.end_recovery(self.now_us)
        self.used_us = self.now_us
        self.consumers: list[Consumer] = []
        self.turns: list[Consumer] = []  # Whose turn is next.
        self.dead: list[DeadRange] = []
        journal = self.journal
        journal.take_released()
        assert (journal.settled, journal.returned, journal.dead) == ({}, {}, []), (
            "the log has it all"
        )

    def left(self) -> list[Message]:
        return [one for one in self.model.messages if one.state != SETTLED]

    def number(self, lane: Lane) -> int:
        return self.queue.lanes.index(lane)

    def message(self, lane: Lane, sequence: int) -> Message:
        return self.model.find(lane, self.queue.lanes, sequence)

    def enqueue(self, lane: Lane, run: Run, time_us: int, expires_us: int) -> None:
        first, count, position, size_bytes = run
        self.queue.enqueue(
            lane, first, count, position, size_bytes, time_us, expires_us, now_us=self.now_us
        )

    # Messages come.

    @rule(
        priority=st.integers(0, 10), count=st.integers(1, 5), size=st.integers(0, 40),
        expires_us=st.sampled_from([0, 0, 0, 60_000, 400_000]),
        waits=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def publish(self, priority: int, count: int, size: int, expires_us: int, waits: bool) -> None:
        """What waits is not durable yet; else all that did so is."""
        definition, queue, model = self.model.definition, self.queue, self.model
        runs = [run for _, run, _ in self.announced]
        length = len(model.those(READY)) + sum(run.count for run in runs) + count
        size_bytes = model.ready_bytes() + sum(run.size_bytes for run in runs) + size
        room = definition.overflow == DROP_HEAD or (
            (definition.max_length is None or length <= definition.max_length)
            and (definition.max_length_bytes is None or size_bytes <= definition.max_length_bytes)
        )
        assert queue.accepts(count, size) == room
        if room:
            self.position += 1
            lane = queue.lane_for(priority)
            assert self.number(lane) == min(priority, definition.max_priority)
            run = Run(queue.announce(lane, count, size), count, self.position, size)
            expires_us = self.now_us + expires_us if expires_us else 0
            self.announced.append((lane, run, expires_us))
        if not waits:
            self.commit(len(self.announced))

    @precondition(lambda self: self.announced)
    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        for lane, run, expires_us in self.announced[:count]:
            self.log.append(("run", self.number(lane), (run, self.now_us, expires_us)))
            self.enqueue(lane, run, self.now_us, expires_us)
            definition = self.model.definition
            self.model.add(self.number(lane), run, self.now_us, expires_us)
            limited = definition.max_length is not None or definition.max_length_bytes is not None
            if limited and definition.overflow == DROP_HEAD:
                self.model.expire(self.now_us)
            self.model.drop_head()
        del self.announced[:count]

    # Consumers.

    @rule(
        prefetch=st.sampled_from([0, 1, 2, 7]), prefetch_bytes=st.sampled_from([0, 0, 15, 50]),
        priority=st.sampled_from([0, 0, 5]), exclusive=st.sampled_from([False] * 6 + [True]),
    )  # fmt: skip
    def subscribe(self, exclusive: bool, **options: Any) -> None:
        self.consumers_ever += 1
        consumer = Consumer(f"c{self.consumers_ever}", exclusive=exclusive, **options)
        if self.consumers and (exclusive or any(one.exclusive for one in self.consumers)):
            with pytest.raises(QueueInUse):
                self.queue.subscribe(consumer)
            return
        self.queue.subscribe(consumer)
        self.consumers.append(consumer)
        self.turns.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), outcome=st.sampled_from(["requeue", "release"]))
    def unsubscribe(self, data: st.DataObject, outcome: str) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.queue.unsubscribe(consumer, self.now_us, outcome)
        self.consumers.remove(consumer)
        self.turns.remove(consumer)
        for one in self.model.unacked_of(consumer):
            if outcome == "requeue":
                self.model.come_back(one)
            else:
                self.model.release(one)
        self.model.drop_head()
        assert consumer not in [*self.queue.consumers]
        self.used_us = self.now_us

    @rule()
    def declare_again(self) -> None:
        self.queue.note_use(self.now_us)
        self.used_us = self.now_us

    @precondition(lambda self: self.model.those(READY))
    @rule(deliveries_max=st.sampled_from([1, 2, 1000, 1000]))
    def take(self, deliveries_max: int) -> None:
        if not self.consumers:  # One at least: hypothesis leaves out some rules each time.
            self.subscribe(exclusive=False, prefetch=7, prefetch_bytes=0, priority=0)
        deliveries = self.queue.take(self.now_us, deliveries_max)
        for one in deliveries:
            self.model.expire(self.now_us)
            self.check_turn(one.consumer)
            self.deliver(one)
        if len(deliveries) < deliveries_max:
            self.model.expire(self.now_us)
            assert not self.model.those(READY) or not self.hungry(), "nobody waits for nothing"

    def hungry(self) -> list[Consumer]:
        return [one for one in self.active() if self.model.has_credit(one)]

    def active(self) -> list[Consumer]:
        single = self.model.definition.single_active_consumer
        active = self.queue.consumers.active
        return [one for one in self.consumers if one is active or not single]

    def check_turn(self, consumer: Consumer) -> None:
        """The highest priority, and of those who have it the first who takes more; the others who were
        before it have had their turn, too."""
        hungry = self.hungry()
        assert consumer in hungry
        assert consumer.priority == max(one.priority for one in hungry)
        if self.model.definition.single_active_consumer:
            return
        equals = [one for one in self.turns if one.priority == consumer.priority]
        for one in equals[: equals.index(consumer) + 1]:
            assert one is consumer or one not in hungry, "in turn"
            self.turns.remove(one)
            self.turns.append(one)

    def deliver(self, got: Delivery) -> None:
        model, consumer = self.model, got.consumer
        ready = model.those(READY)
        messages = [self.message(got.lane, got.first + at) for at in range(got.count)]
        assert messages == ready[: got.count], "the first of those that are ready"
        assert len({one.run for one in messages}) == 1
        assert {one.returned for one in messages} == {got.returned}
        for at, one in enumerate(messages):
            assert model.has_credit(consumer), "within the prefetch"
            held = sum(other.size_bytes for other in model.unacked_of(consumer)) + one.size_bytes
            limit = consumer.prefetch_bytes
            assert at == 0 or not limit or held <= limit
            one.state, one.consumer, one.tag = UNACKED, consumer, got.tag + at

    @precondition(lambda self: self.consumers)
    @rule(
        data=st.data(), start=st.integers(0, 30), count=st.integers(-1, 12),
        outcome=st.sampled_from(["ack", "ack", "requeue", "reject", "release"]),
    )  # fmt: skip
    def settle(self, data: st.DataObject, start: int, count: int, outcome: str) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        held = [one.tag for one in self.model.unacked_of(consumer)]
        if held:
            start = data.draw(st.sampled_from([start, *held]))
        self.settle_tags(consumer, start, start + count, outcome)

    def settle_tags(self, consumer: Consumer, start: int, end: int, outcome: str) -> None:
        found = [one for one in self.model.unacked_of(consumer) if start <= one.tag < end]
        assert self.queue.settle(consumer, start, end, outcome) == len(found)
        for one in found:
            if outcome == "ack":
                one.state, one.consumer = SETTLED, None
            elif outcome == "reject":
                self.model.goes(one, "rejected")
            elif outcome == "release":
                self.model.release(one)
            else:
                self.model.come_back(one)
        if outcome in ("requeue", "release"):
            self.model.drop_head()

    # Messages go.

    @rule(steps=st.integers(1, 6))
    def time_goes_on(self, steps: int) -> None:
        """By more than a mark covers, so times are exact."""
        self.now_us += 60_000 * steps

    @precondition(lambda self: self.model.those(READY))
    @rule()
    def expire(self) -> None:
        assert self.queue.expire(self.now_us) == self.model.expire(self.now_us)

    @precondition(lambda self: self.model.those(READY))
    @rule()
    def purge(self) -> None:
        ready = self.model.those(READY)
        assert self.queue.purge() == len(ready)
        for one in ready:
            one.state = SETTLED

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def dead_letter(self, data: st.DataObject) -> None:
        """Its settlement is in the log, with the copy."""
        dead = data.draw(st.sampled_from(self.dead))
        self.dead.remove(dead)
        lane = self.queue.lanes[dead.lane - LANE_ID]
        self.log.append(("settled", dead.lane - LANE_ID, [(dead.start, dead.end)]))
        self.queue.settle_dead(dead)
        for sequence in range(dead.start, dead.end):
            one = self.message(lane, sequence)
            one.state, one.settled_in_log = SETTLED, True

    @precondition(lambda self: self.model.those(UNACKED))
    @rule(outcome=st.sampled_from(["ack", "requeue", "reject", "release"]))
    def delete(self, outcome: str) -> None:
        """While consumers hold some of it; and declare another one of that name, which knows of nothing."""
        self.flush()
        for lane in self.queue.lanes:
            lane.retire()
        for consumer in self.consumers:
            self.queue.settle(consumer, 0, consumer.next_tag, outcome)
            self.queue.unsubscribe(consumer, self.now_us)
        journal = self.journal
        journal.take_released()
        assert (journal.settled, journal.returned, journal.dead) == ({}, {}, []), (
            "no concern of the log"
        )
        self.log, self.checkpoint = [], (0, [])
        self.announced.clear()
        self.model.messages.clear()
        self.recover()

    # The log.

    @precondition(lambda self: self.left())
    @rule(data=st.data())
    def carry_forward(self, data: st.DataObject) -> None:
        """As compaction does with a record that is needed still."""
        needed = sorted({(one.lane, one.run) for one in self.left()})
        number, run = data.draw(st.sampled_from(needed))
        self.position += 1
        assert self.queue.lanes[number].move(run.first, self.position)
        self.log.append(("moved", number, (run.first, self.position)))
        for one in self.model.messages:
            if (one.lane, one.run) == (number, run):
                one.run = run._replace(position=self.position)

    @precondition(lambda self: self.model.messages)
    @rule()
    def flush(self) -> None:
        self.dead += self.journal.take_dead()
        self.journal.take_released()
        settled, returned = self.journal.take_settled()
        for lane_id, ranges in returned.items():
            self.log.append(("returned", lane_id - LANE_ID, ranges))
        for lane_id, ranges in settled.items():
            self.log.append(("settled", lane_id - LANE_ID, ranges))
        for one in self.model.messages:
            one.settled_in_log = one.state == SETTLED
            if not one.settled_in_log:
                one.returned_in_log = one.returned

    @precondition(lambda self: self.model.messages)
    @rule()
    def save(self) -> None:
        """A checkpoint is of one log position: nothing gathered is left out of the log before it."""
        self.flush()
        self.checkpoint = len(self.log), [encoded(lane) for lane in self.queue.lanes]

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), damaged=st.booleans())
    def crash(self, data: st.DataObject, damaged: bool) -> None:
        self.announced.clear()
        self.model.crash()
        if damaged:
            self.damage(data)
        self.recover()

    def damage(self, data: st.DataObject) -> None:
        """One record is lost, not the last of its lane, whose sequences the snapshot knows."""
        lasts = {number: at for at, (kind, number, _) in enumerate(self.log) if kind == "run"}
        moved = {(number, what[0]) for kind, number, what in self.log if kind == "moved"}
        start = self.checkpoint[0]
        runs = [
            at for at, (kind, number, what) in enumerate(self.log)
            if kind == "run" and at != lasts[number] and at >= start
            and (number, what[0].first) not in moved
        ]  # fmt: skip
        if runs:
            at = data.draw(st.sampled_from(runs))
            _, number, (run, _, _) = self.log.pop(at)
            for one in [one for one in self.model.messages if one.lane == number]:
                if one.run == run:
                    self.model.messages.remove(one)

    @invariant()
    def agrees(self) -> None:
        model, queue = self.model, self.queue
        unacked = model.those(UNACKED)
        assert queue.ready == len(model.those(READY))
        assert queue.ready_bytes == model.ready_bytes()
        assert queue.unacked == len(unacked)
        left = self.left()
        assert queue.dead == len(model.those(DYING))
        announced = sum(run.count for _, run, _ in self.announced)
        assert queue.unsettled == len(left) + announced
        assert queue.size_bytes == sum(one.size_bytes for one in left)
        assert (queue.oldest_us() is None) == (not left)
        assert queue.idle_since_us() == (None if self.consumers else self.used_us)
        for consumer in self.consumers:
            assert consumer.unacked == len(model.unacked_of(consumer))
        assert queue.counts.dropped == model.dropped
        assert len(queue.consumers) == len(self.consumers)
        active = len(self.active())
        single = model.definition.single_active_consumer
        assert active == (min(1, len(self.consumers)) if single else len(self.consumers))
        self.check_the_dead()
        for number, lane in enumerate(queue.lanes):
            needed = {one.run.position for one in left if one.lane == number}
            assert sorted(positions_of(lane.referenced())) == sorted(needed)

    def check_the_dead(self) -> None:
        dead = [
            (one.lane - LANE_ID, sequence, one.reason)
            for one in self.dead + self.journal.dead
            for sequence in range(one.start, one.end)
        ]
        dying = [(one.lane, one.sequence, one.reason) for one in self.model.those(DYING)]
        assert sorted(dead) == sorted(dying)

    @invariant()
    def what_is_to_be_written_is_what_happened(self) -> None:
        written = {
            (lane_id - LANE_ID, sequence)
            for lane_id, ranges in self.journal.settled.items()
            for span in ranges
            for sequence in range(*span)
        }
        assert written == {
            (one.lane, one.sequence)
            for one in self.model.messages
            if one.state == SETTLED and not one.settled_in_log
        }


TestQueue = QueueMachine.TestCase
