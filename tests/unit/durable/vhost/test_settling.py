"""Settlements that one record does not take, with a log that has room for one record at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.errors import StoreBusy, StoreFull
from durable.log.bodies import decode_acks, encode_acks, encode_acks_in_parts
from durable.log.record import Draft, Kind
from durable.log.segments import Tally
from durable.queues.consumers import Consumer
from durable.queues.queue import ACK
from durable.vhost import changes
from tests.logs import definitions
from tests.vhosts import (
    PUBLISHER,
    PlainStore,
    PlainTally,
    PlainVhost,
    anybody,
    as_record,
    make_batch,
)

TAKES = 1000
MESSAGES = 60


class Cramped(PlainStore):
    """Each commit makes room for `room` appends."""

    room = 1000

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        if not self.room:
            raise StoreBusy(1, "a test")
        self.room -= 1
        return super().append_nowait(drafts, hurry=hurry)


def cramped() -> tuple[PlainVhost, Cramped, Consumer]:
    """A consumer has all messages, one of each batch."""
    store = Cramped()
    one = PlainVhost((), store)
    definition = QueueDefinition(name="q")
    one.change([changes.QUEUE, one.registry.new_lanes(definition), to_plain(definition)])
    publisher = one.publishers.open(PUBLISHER, 1, 0)
    for number in range(MESSAGES):
        one.vhost.intake.publish(publisher, [make_batch(number, [b"x"])], anybody, 0)
    one.commit()
    queue, consumer = one.registry.queue("q"), Consumer("c", prefetch=0, prefetch_bytes=0)
    queue.subscribe(consumer)
    queue.take(0)
    store.append_bytes_max = TAKES
    return one, store, consumer


def ready(one: PlainVhost) -> list[tuple[int, int]]:
    (lane,) = one.registry.queue("q").lanes
    return lane.ready_ranges()


def returned(one: PlainVhost) -> list[tuple[int, int, int]]:
    (lane,) = one.registry.queue("q").lanes
    return list(lane.returns_between(0, MESSAGES))


def test_each_record_is_a_quarter_of_what_a_segment_takes_and_all_are_one_flush() -> None:
    """Found: what one consumer gave back was more than a segment takes, and ended the broker."""
    one, store, consumer = cramped()
    queue, settling = one.registry.queue("q"), one.vhost.settling
    for tag in range(0, MESSAGES, 2):
        queue.settle(consumer, tag, tag + 1, ACK)
    queue.unsubscribe(consumer, 0)
    flush, store.room, before = settling.next_flush(), 1, store.end
    messages = range(before - MESSAGES, before)
    settling.flush(0)
    assert (store.end, store.needed()) == (before + 1, dict.fromkeys(messages, 1))
    while settling.durable_flush < flush:
        assert settling.refusal is not None, (
            "or a snapshot would count what its record counts again"
        )
        assert len(store.needed()) == MESSAGES, "nothing is released before all of it is durable"
        store.room = 1
        settling.flush(0)
        one.commit()
    assert settling.refusal is None
    assert settling.last_position == store.end - 1
    assert store.needed() == dict.fromkeys(messages[1::2], 1)
    records = [store.records[position] for position in range(before, store.end)]
    assert len(records) > 2
    assert all(one.kind == Kind.ACKS and one.header.total_bytes < TAKES / 2 for one in records)
    again = one.restarted()
    assert ready(again) == [(number, number + 1) for number in range(1, MESSAGES, 2)]
    assert returned(again) == returned(one)


def test_each_record_is_a_quarter_of_the_reserve_where_that_is_less() -> None:
    """On a full disk one that is larger than what is left for it would keep back all others."""
    one, store, consumer = cramped()
    store.append_bytes_max, store.reserve_bytes = 1 << 30, TAKES
    queue, before = one.registry.queue("q"), store.end
    for tag in range(0, MESSAGES, 2):
        queue.settle(consumer, tag, tag + 1, ACK)
    one.flush()
    records = [store.records[position] for position in range(before, store.end)]
    assert len(records) > 1
    assert all(one.header.total_bytes < TAKES / 2 for one in records)


def test_what_is_settled_while_the_log_has_no_room_is_the_same_flush() -> None:
    one, store, consumer = cramped()
    queue, settling = one.registry.queue("q"), one.vhost.settling
    for tag in range(0, MESSAGES, 2):
        queue.settle(consumer, tag, tag + 1, ACK)
    store.room = 1
    settling.flush(0)
    queue.settle(consumer, 1, 2, ACK)
    flush, store.room = settling.next_flush(), 1000
    settling.flush(0)
    assert settling.durable_flush < flush
    one.commit()
    assert settling.durable_flush == flush
    assert (1, 2) not in ready(one.restarted())


def test_what_it_would_free_is_asked_as_if_there_had_been_room() -> None:
    """And only where the disk is full."""
    one, store, consumer = cramped()
    queue, settling = one.registry.queue("q"), one.vhost.settling
    before, messages = store.needed(), range(store.end - MESSAGES, store.end)
    told: list[Tally] = []

    def let_go(besides: Tally) -> bool:
        told.append(besides)
        return would

    assert not settling.would_free_segment(let_go)
    store.refusal = StoreBusy(1, "a test")
    queue.settle(consumer, 0, 10, ACK)
    settling.flush(0)
    assert not settling.would_free_segment(let_go)
    assert not told
    store.refusal = StoreFull(1, 1, 0)
    for would, settled in ((False, 10), (True, 15)):
        queue.settle(consumer, 10, settled, ACK)
        settling.flush(0)
        assert settling.would_free_segment(let_go) == would
        assert told[-1].references == dict.fromkeys(messages[:settled], 1)
        assert store.needed() == before
    store.refusal = None
    settling.flush(0)
    one.commit()
    assert store.needed() == dict.fromkeys(messages[15:], 1)
    store.refusal = StoreFull(1, 1, 0)
    queue.settle(consumer, 20, 21, ACK)
    settling.flush(0)
    assert settling.would_free_segment(let_go)
    assert told[-1].references == {messages[20]: 1}, "what there was room for meanwhile is not"


def test_what_is_refused_is_counted_once_however_long_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: 100,000 that were settled out of order took a long turn at each look."""
    one, store, consumer = cramped()
    queue, settling, counted = one.registry.queue("q"), one.vhost.settling, list[int]()

    def note(_: Tally, positions: range, _size_bytes: int) -> None:
        counted.extend(positions)

    monkeypatch.setattr(PlainTally, "count_each", note)
    messages, settled = range(store.end - MESSAGES, store.end), range(0, MESSAGES, 2)
    store.refusal = StoreBusy(1, "a test")
    queue.settle(consumer, 0, 1, ACK)
    settling.flush(0)
    assert not counted, "only where the disk is full: logs under load are busy all the time"
    store.refusal = StoreFull(1, 1, 0)
    for tag in settled:
        queue.settle(consumer, tag, tag + 1, ACK)
        settling.flush(0)
        settling.would_free_segment(lambda _: False)
    assert counted == [messages[tag] for tag in settled]


def test_only_who_waits_for_settlements_makes_the_log_hurry() -> None:
    one, store, consumer = cramped()
    queue, settling = one.registry.queue("q"), one.vhost.settling
    queue.settle(consumer, 0, 1, ACK)
    settling.flush(0)
    assert (store.end, store.hurried) == (settling.last_position + 1, False)
    settling.hurry()  # Although there is nothing more to append.
    settling.flush(0)
    assert store.hurried
    queue.settle(consumer, 1, 2, ACK)
    store.room = 0
    settling.hurry()
    settling.flush(0)
    store.room = 1000
    settling.flush(0)
    assert store.hurried, "who waited when there was no room still waits"


def test_parts_say_together_what_one_says() -> None:
    settled = {7: [(0, 1), (5, 9)], 8: [(number, number + 1) for number in range(0, 100, 2)]}
    back = {7: [(2, 3)], 9: [(4, 5)]}

    def blocks(body: bytes) -> list[tuple[int, int, tuple[int, int]]]:
        found = decode_acks(as_record(Draft(Kind.ACKS, body), 1))
        return [(one.what, one.queue, range_) for one in found for range_ in one.ranges]

    whole = blocks(encode_acks(settled, back))
    for bytes_max in (1, 32, 33, 64, 200, 1 << 20):
        parts = list(encode_acks_in_parts(settled, back, bytes_max))
        assert all(len(part) <= max(32, bytes_max) for part in parts)
        assert [block for part in parts for block in blocks(part)] == whole
    assert list(encode_acks_in_parts({}, {}, 100)) == []


def test_what_a_snapshot_covers_is_settled_with_it_and_not_appended_any_more() -> None:
    """What was taken from the journal, and what was not yet."""
    one, store, consumer = cramped()
    queue, settling = one.registry.queue("q"), one.vhost.settling
    messages = range(store.end - MESSAGES, store.end)
    for tag in range(0, MESSAGES, 2):
        queue.settle(consumer, tag, tag + 1, ACK)
    store.room = 1
    settling.flush(0)
    one.commit()
    queue.settle(consumer, 1, 2, ACK)
    flush, store.room = settling.next_flush(), 1000
    (snapshot,) = store.append_nowait([definitions("a snapshot")])
    settling.note_covered(snapshot)
    assert (settling.refusal, settling.last_position) == (None, snapshot)
    assert settling.durable_flush < flush
    assert len(store.needed()) == MESSAGES, "nothing is released before it is durable"
    one.commit()
    assert settling.durable_flush == flush
    assert store.needed() == dict.fromkeys(messages[3::2], 1)
    one.flush()
    assert store.end == snapshot + 1
    assert settling.next_flush() == flush + 1, "nothing has been settled since"
