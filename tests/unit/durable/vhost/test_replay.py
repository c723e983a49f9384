"""What a restart knows is what the log says: rebuilt from records, a vhost is the one that lived."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.broker.cut_estimate import needed_of
from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import StoreBusy
from durable.log.bodies import Missed, encode_definitions, move
from durable.log.record import Draft, Kind, Record
from durable.queues.consumers import Consumer
from durable.vhost import changes
from durable.vhost.gaps import GAPS_MAX, StreamGap
from mesh.protocol.batch import Batch, batch_pieces
from tests.compactions import cut_at_any_price
from tests.vhosts import PUBLISHER, PlainVhost, anybody, as_record, make_batch, snapshot_of

NAMES = ("a", "b", "c")
OUTCOMES = ("ack", "requeue", "reject", "release")
steps = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from(NAMES), st.integers(0, 1)),
    st.tuples(st.just("gone"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("bind"), st.sampled_from((*NAMES, "s")), st.integers(0, 2)),
    st.tuples(st.just("unbind"), st.sampled_from((*NAMES, "s")), st.integers(0, 2)),
    st.tuples(st.just("exchange"), st.just("e"), st.integers(0, 1)),
    st.tuples(
        st.just("ending"),
        st.sampled_from((*NAMES, "m", "n", "amq.fanout", "e2")),
        st.integers(0, 3),
    ),
    st.tuples(st.just("memory"), st.sampled_from(("m", "n")), st.just(0)),
    st.tuples(st.just("stream"), st.just("s"), st.integers(0, 3)),
    st.tuples(st.just("publish"), st.sampled_from((*NAMES, "s", "x")), st.integers(1, 5)),
    st.tuples(st.just("fanout"), st.just("k0"), st.integers(1, 5)),
    st.tuples(st.just("refused"), st.sampled_from(NAMES), st.integers(1, 3)),
    st.tuples(st.just("take"), st.sampled_from(NAMES), st.integers(1, 9)),
    st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(NAMES), st.integers(0, 8)),
    st.tuples(st.just("commit"), st.just(""), st.just(0)),
    st.tuples(st.just("flush"), st.just(""), st.just(0)),
    st.tuples(st.just("retain"), st.just("s"), st.integers(0, 0)),
    st.tuples(st.just("snapshot"), st.just(""), st.just(0)),
)


class Story(PlainVhost):
    """A vhost to which things happen."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        self.consumers: dict[str, Consumer] = {}
        self.snapshot_at = 0

    def consumer(self, name: str) -> Consumer | None:
        queue = self.registry.queues.get(name)
        if queue is None:
            self.consumers.pop(name, None)
            return None
        consumer = self.consumers.get(name)
        if consumer is None or consumer not in queue.consumers:
            consumer = self.consumers[name] = Consumer(name, prefetch=0, prefetch_bytes=0)
            queue.subscribe(consumer)
        return consumer

    def step(self, what: str, name: str, number: int) -> None:
        registry = self.registry
        if what == "queue" and name not in registry.queues:
            definition = QueueDefinition(name=name, max_priority=number)
            lanes = registry.new_lanes(definition)
            self.change([changes.QUEUE, lanes, to_plain(definition)])
        elif what == "gone":
            self.change([changes.QUEUE_GONE, name])
        elif what in ("bind", "unbind") and (name in registry.queues or name in registry.streams):
            key = f"k{number}"
            exchange = "e" if number and registry.router.has_exchange("e") else "amq.fanout"
            binding = BindingDefinition(exchange=exchange, destination=name, key=key)
            self.change([getattr(changes, what.upper()), to_plain(binding)])
        elif what == "exchange":
            if registry.router.has_exchange("e"):
                self.change([changes.EXCHANGE_GONE, "e"])
            else:
                kind = ("topic", "direct")[number]
                definition_e = ExchangeDefinition(name="e", type=kind, alternate="amq.fanout")
                self.change([changes.EXCHANGE, to_plain(definition_e)])
        elif what == "ending":
            self.ending(name, number)
        elif what == "memory":
            if name in registry.queues:
                self.change([changes.QUEUE_GONE, name])
            else:
                memory = QueueDefinition(name=name, durability="memory")
                self.change([changes.QUEUE, registry.new_lanes(memory), to_plain(memory)])
        elif what == "stream":
            self.stream(number)
        elif what in ("publish", "fanout", "refused"):
            self.publish(what, name, number)
        elif what == "take" and self.consumer(name):
            registry.queue(name).take(0, number)
        elif what in OUTCOMES and (consumer := self.consumer(name)):
            registry.queue(name).settle(consumer, number, 2 * number + 1, what)
        elif what == "retain" and "s" in registry.streams:
            registry.stream("s").retain(0)
        elif what == "snapshot":
            self.vhost.settling.flush(0)
            drafts = snapshot_of(self.vhost)
            self.snapshot_at = self.store.append_nowait(drafts)[0]
        elif what in ("commit", "flush"):
            getattr(self, what)()

    def ending(self, name: str, number: int) -> None:
        """Exchanges that end with their last binding, and what they are bound to."""
        router = self.registry.router
        exchange = ("e1", "e2")[number % 2]
        if not router.has_exchange(exchange):
            definition = ExchangeDefinition(name=exchange, auto_delete=True)
            self.change([changes.EXCHANGE, to_plain(definition)])
            return
        to_exchange = router.has_exchange(name)
        binding = BindingDefinition(exchange=exchange, destination=name, to_exchange=to_exchange)
        if to_exchange or name in self.registry.queues:
            self.change([changes.UNBIND if number > 1 else changes.BIND, to_plain(binding)])

    def stop(self) -> None:
        """What is in memory ends."""
        for queue in list(self.registry.queues.values()):
            if not queue.logged:
                self.registry.apply([changes.QUEUE_GONE, queue.name])

    def stream(self, number: int) -> None:
        if "s" not in self.registry.streams:
            definition = StreamDefinition(name="s", max_length=4, patterns=("t.>",))
            (lane,) = self.registry.new_lanes(definition)
            self.change([changes.STREAM, lane, to_plain(definition)])
        elif number:
            self.change([changes.CURSOR, "s", f"cursor {number}", number * 2])
        else:
            self.change([changes.STREAM_GONE, "s"])

    def publish(self, what: str, name: str, count: int) -> None:
        publisher = self.publishers.open(PUBLISHER, 1, 0)
        exchange = "amq.fanout" if what == "fanout" else ""
        payloads = [b"%d" % number for number in range(count)]
        batch = make_batch(self.sequence, payloads, key=name, exchange=exchange)
        if what == "refused":
            before = self.told()
            self.store.refusal = StoreBusy(1, "a test")
            try:
                self.vhost.intake.publish(publisher, [batch], anybody, 0)
            except StoreBusy:
                pass
            else:
                assert name not in self.registry.queues
            self.store.refusal = None
            assert self.told() == before or name not in self.registry.queues
            return
        self.vhost.intake.publish(publisher, [batch], anybody, 0)
        self.sequence = batch.next_sequence

    def told(self) -> Any:
        return told(self)

    def end(self) -> None:
        """Everything comes back, and is on disk."""
        self.commit()
        for name, consumer in self.consumers.items():
            queue = self.registry.queues.get(name)
            if queue is not None and consumer in queue.consumers:
                queue.unsubscribe(consumer, 0)
        self.vhost.settling.flush(0)
        self.commit()


def told(one: PlainVhost) -> Any:
    """Everything that a restart has to know."""
    registry = one.registry
    lanes = {
        lane.id: (
            lane.next,
            list(lane.settled.unsettled(0, lane.next)),
            [
                piece
                for low, high in lane.settled.unsettled(0, lane.next)
                for piece in lane.returns_between(low, high)
            ],
        )
        for lane in registry.lanes.values()
    }
    known = [
        sequence
        for publisher in one.publishers
        for first, end, stored in publisher.known_ranges(0, max(1, publisher.next))
        for sequence in range(first, end)
        if stored
    ]
    declared = sorted([*registry.declared(), *registry.cursors()], key=repr)
    return lanes, known, declared


def ready(one: PlainVhost) -> Any:
    return {queue.name: (queue.ready, queue.size_bytes) for queue in one.registry.queues.values()}


first_steps = [("queue", "a", 0), ("queue", "b", 1), ("stream", "s", 0), ("bind", "a", 0),
               ("publish", "a", 5), ("publish", "b", 3), ("commit", "", 0), ("take", "a", 9),
               ("take", "b", 2)]  # fmt: skip
stories = st.lists(steps, min_size=5, max_size=40)
anything = st.sets(st.integers(0, 60)) | st.just(set(range(1000)))


def lived(history: list[tuple[str, str, int]]) -> Story:
    story = Story()
    for step in [*first_steps, *history]:
        story.step(*step)
    story.end()
    return story


@settings(max_examples=300)
@given(stories)
def test_rebuilt_from_all_records(history: list[tuple[str, str, int]]) -> None:
    """Goal: nothing is lost, nothing comes back. Oracle: the vhost that lived."""
    story = lived(history)
    again = story.restarted()
    story.stop()
    assert not again.replay.damaged
    assert told(again) == told(story)
    assert ready(again) == ready(story)
    assert not again.replay._lost_counts
    assert again.store.needed() == story.store.needed()


@settings(max_examples=300)
@given(stories, stories, anything)
def test_rebuilt_from_a_snapshot_and_what_is_needed(
    before: list[tuple[str, str, int]], after: list[tuple[str, str, int]], freed: set[int]
) -> None:
    """Older records that nothing refers to may be there or not."""
    story = lived(before)
    story.step("snapshot", "", 0)
    for step in after:
        story.step(*step)
    story.end()
    needed = story.store.needed()
    # What was on its way to the disk with the snapshot is not freed before a root names that.
    known = story.snapshot_at - story.store.records[story.snapshot_at].header.unsynced
    gone = [at for at in freed if at < known and at not in needed]
    again = story.restarted(gone)
    story.stop()
    assert told(again) == told(story)
    assert ready(again) == ready(story)
    assert again.store.needed() == needed
    assert not again.replay._lost_counts


@settings(max_examples=200)
@given(stories, stories, anything, st.booleans(), st.booleans())
def test_rebuilt_with_moved_records(
    before: list[tuple[str, str, int]], after: list[tuple[str, str, int]], moved: set[int],
    twice: bool, cut: bool,
) -> None:  # fmt: skip
    """Compaction writes a record again at the end, whole or cut; its original may be gone, or still there."""
    story = lived(before)
    for step in after:
        story.step(*step)
    if cut:
        _settle_some(story)
    story.end()
    store = story.store
    for at in sorted(moved & set(store.needed())):
        record = store.records[at]
        if record.kind != Kind.PUBLISH:
            continue
        left = _cut(story, record) if cut else None
        draft = move(record, record.targets, left)
        store.records[store.end] = as_record(draft, store.end)
        if not twice:
            # Its publisher's table would be in a snapshot; here the original leaves its sequences.
            store.records[at] = as_record(Draft(Kind.PUBLISH, record.body), at)
        store.end += 1
    store.durable_end = store.end
    again = story.restarted()
    story.stop()
    assert told(again) == told(story)
    assert ready(again) == ready(story)
    for at, count in again.store.needed().items():
        assert count == len(again.store.records[at].targets) or at < store.end


def _settle_some(story: Story) -> None:
    """One message in two of what is ready."""
    for queue in story.registry.queues.values():
        for lane in queue.lanes:
            for low, high in lane.ready_ranges():
                for at in range(low, high, 2):
                    lane.take_range(at, at + 1)
                    lane.settle(at, at + 1)


def _cut(story: Story, record: Record) -> bytes | None:
    """Worth it or not."""
    with cut_at_any_price():
        needed = needed_of(story.vhost, record)
        return None if needed is None else needed.cut


def test_a_queue_of_the_same_name_whose_end_was_freed() -> None:
    """Found: the older definition stayed, and with it went the messages of the newer one."""
    story = Story()
    story.step("queue", "a", 0)
    story.step("publish", "a", 3)
    story.commit()
    story.step("gone", "a", 0)
    gone_at = story.store.end - 1
    story.step("queue", "a", 1)
    story.step("publish", "a", 2)
    story.end()
    story.step("snapshot", "", 0)
    story.commit()
    again = story.restarted([gone_at])
    assert told(again) == told(story)
    assert again.registry.queue("a").ready == 2


def test_a_binding_whose_exchange_was_freed() -> None:
    """Found: UnknownExchange left recovery, and the broker did not start."""
    story = Story()
    story.step("queue", "a", 0)
    story.step("exchange", "e", 0)
    exchange_at = story.store.end - 1
    story.step("bind", "a", 1)
    story.step("exchange", "e", 0)
    story.step("snapshot", "", 0)
    story.commit()
    again = story.restarted([exchange_at])
    assert told(again) == told(story)
    assert not again.replay.damaged


def test_what_a_later_release_declares_does_not_cost_what_is_around_it() -> None:
    """Found: one change that makes no sense took the rest of its record along."""
    story = Story()
    story.step("queue", "a", 0)
    nonsense = [["from the future", 1], 5, [], ["queue", [9], {"name": "z", "colour": 1}]]
    plain = to_plain(QueueDefinition(name="b"))
    last = [changes.QUEUE, [7], plain]
    body = encode_definitions([*nonsense, last])
    story.store.append_nowait([Draft(Kind.DEFINITIONS, body)])
    story.commit()
    again = story.restarted()
    assert set(again.registry.queues) == {"a", "b"}
    assert len(again.replay.damaged) == len(nonsense)


def test_a_snapshot_of_an_older_release_keeps_what_it_declares() -> None:
    """Found: a definition with fewer fields than today's passed for another one, and was deleted."""
    story = Story()
    plain = to_plain(QueueDefinition(name="a"))
    del plain["single_active_consumer"]
    snapshot = [[changes.SNAPSHOT, 5], [changes.QUEUE, [1], plain], ["snapshot end"]]
    story.store.append_nowait([Draft(Kind.DEFINITIONS, encode_definitions(snapshot))])
    story.commit()
    assert set(story.restarted().registry.queues) == {"a"}


def ending_exchange(story: Story, *steps: tuple[str, str, int]) -> PlainVhost:
    """The restart of a story in which e1, which ends with its last binding, is declared first."""
    for step in [("queue", "a", 0), ("memory", "m", 0), ("ending", "", 0), *steps]:
        story.step(*step)
    story.commit()
    return story.restarted()


def test_an_exchange_that_ended_with_a_queue_in_memory_does_not_come_back() -> None:
    """Found: neither that binding nor its end was in the log."""
    bound = ("ending", "m", 0)
    for end in ([], [("ending", "m", 2)], [("memory", "m", 0)]):
        again = ending_exchange(Story(), bound, *end)
        assert not again.registry.router.has_exchange("e1"), end
        assert "m" not in again.registry.queues
    never_bound = ending_exchange(Story())
    assert never_bound.registry.router.has_exchange("e1")


def test_an_exchange_outlives_its_logged_bindings_through_a_queue_in_memory() -> None:
    """Found: a restart ended it with the last binding that the log had, and lost what came after."""
    again = ending_exchange(
        Story(), ("ending", "m", 0), ("ending", "a", 0), ("ending", "a", 2), ("ending", "a", 0)
    )
    (binding,) = again.registry.router.bindings_to("a")
    assert binding.exchange == "e1"


def test_an_exchange_that_ended_and_was_declared_again_is_there() -> None:
    again = ending_exchange(Story(), ("ending", "m", 0), ("memory", "m", 0), ("ending", "", 0))
    assert again.registry.router.has_exchange("e1")
    assert not again.registry.router.definitions()[1]


def test_a_binding_whose_end_was_freed_does_not_take_its_exchange_along() -> None:
    """Found: the snapshot took back the binding, and with it went what it had just declared."""
    story = Story()
    for step in [("queue", "a", 0), ("ending", "", 0), ("ending", "a", 0)]:
        story.step(*step)
    freed = story.store.end
    for step in [("ending", "a", 2), ("ending", "", 0), ("snapshot", "", 0)]:
        story.step(*step)
    story.commit()
    again = story.restarted([freed, freed + 1])
    assert again.registry.router.has_exchange("e1")
    assert told(again) == told(story)


def test_a_snapshot_waits_for_returns_that_the_log_has_no_room_for() -> None:
    """Or they would be counted by the snapshot, and by their record once more."""
    story = Story()
    for step in [("queue", "a", 0), ("publish", "a", 3), ("commit", "", 0), ("take", "a", 3)]:
        story.step(*step)
    story.step("requeue", "a", 0)
    story.store.refusal = StoreBusy(1, "a test")
    story.vhost.settling.flush(0)
    with pytest.raises(StoreBusy):
        snapshot_of(story.vhost)
    story.store.refusal = None
    story.step("snapshot", "", 0)
    story.step("flush", "", 0)
    (lane,) = story.restarted().registry.queue("a").lanes
    assert list(lane.returns_between(0, 3)) == [(0, 1, 1), (1, 3, 0)]


def test_gaps_over_the_limit_become_one_and_the_sum_stays_true() -> None:
    story = Story()
    story.step("stream", "s", 0)
    (lane,) = [one.lane.id for one in story.registry.streams.values()]
    for offset in range(0, 2 * (GAPS_MAX + 10), 2):
        story.registry.gaps.note(StreamGap(lane, offset, Missed(PUBLISHER, 1, "t", offset, 3)))
    gaps = list(story.registry.gaps)
    assert len(gaps) == GAPS_MAX
    assert sum(gap.missed.messages for gap in gaps) == 3 * (GAPS_MAX + 10)
    assert (gaps[0].offset, gaps[0].missed) == (20, Missed(bytes(16), 0, "", 0, 33))
    assert story.registry.gaps.between(lane, 20, 23) == gaps[:2]
    assert story.registry.gaps.between(lane, 21, 22) == []
    assert story.registry.gaps.between(lane, 5000, 6000) == []
    assert story.registry.gaps.between(lane + 1, 0, 6000) == []
    assert story.registry.gaps.missing_before(lane, 20) == 0
    assert story.registry.gaps.missing_before(lane, 21) == 33
    assert story.registry.gaps.missing_before(lane, 6000) == 3 * (GAPS_MAX + 10)
    (rest, whole) = story.registry.gaps.between(lane, 9, 23, 15)
    assert (rest.missed.messages, whole) == (33 - 15, gaps[1])
    assert story.registry.gaps.between(lane, 9, 23, 33) == [gaps[1]]
    story.step("snapshot", "", 0)
    story.commit()
    assert list(story.restarted().registry.gaps) == gaps


def test_what_was_captured_needs_no_properties_of_ours() -> None:
    """Found: it was committed and could be read until the next start; then its offset was settled."""
    story = Story()
    story.step("stream", "s", 0)
    (stream,) = story.registry.streams.values()
    pieces, _ = batch_pieces(
        PUBLISHER, 1, 0, 0, stream.definition.patterns[0].encode(), [b"x", b"y"],
        shared_headers=b"whatever the mesh carried",
    )  # fmt: skip
    story.vhost.capture(Batch(b"".join(pieces)), 0, 0)
    story.commit()
    position = story.store.end - 1
    captured = story.store.records[position]
    (moved,) = story.store.append_nowait([move(captured, captured.targets)])
    story.commit()
    for gone, where in ((moved, position), (position, moved)):
        again = story.restarted([gone])
        assert not again.replay.damaged
        (run,) = again.registry.stream("s").lane.index.runs(0, 9)
        assert (run.first, run.count, run.position) == (0, 2, where)
