"""One promise of a queue each, as a story; the machine beside this file tries them together."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from durable.definitions import REJECT_PUBLISH, QueueDefinition
from durable.queues.consumers import Consumer
from durable.queues.journal import DeadRange, Journal
from durable.queues.lane import Lane
from durable.queues.queue import Delivery, Queue
from tests.queues import encoded, positions_of


class Story:
    """A queue, its journal, a clock that stands still, and the log positions it used."""

    def __init__(self, **options: Any) -> None:
        definition = QueueDefinition(name="orders", **options)
        self.journal = Journal()
        lanes = [Lane(at, self.journal, logged=True) for at in range(definition.max_priority + 1)]
        self.queue = Queue(definition, lanes)
        self.position = self.now_us = 0

    def publish(self, count: int, *, priority: int = 0, expires_us: int = 0) -> None:
        lane, size = self.queue.lane_for(priority), 10 * count
        first = self.queue.announce(lane, count, size)
        self.position += 1
        self.queue.enqueue(
            lane, first, count, self.position, size, self.now_us, expires_us, now_us=self.now_us
        )

    def consumer(self, name: str = "c", **options: Any) -> Consumer:
        consumer = Consumer(name, **{"prefetch": 0, "prefetch_bytes": 0, **options})
        self.queue.subscribe(consumer)
        return consumer

    def take(self) -> list[tuple[str, int, int, int]]:
        """Whom, lane, first sequence, count."""
        got = self.queue.take(self.now_us)
        return [(one.consumer.id, one.lane.id, one.first, one.count) for one in got]


def test_a_run_goes_in_slices_as_credit_allows() -> None:
    story = Story()
    consumer = story.consumer(prefetch=3)
    story.publish(5)
    story.publish(2)
    assert story.queue.take(0) == [Delivery(consumer, 0, story.queue.lanes[0], 0, 3, 0)]
    assert story.queue.settle(consumer, 0, 2, "ack") == 2
    assert story.queue.settle(consumer, 0, 2, "ack") == 0, "they are settled already"
    assert story.take() == [("c", 0, 3, 2)]
    assert story.queue.settle(consumer, 0, 99, "ack") == 3
    assert story.journal.settled == {0: [(0, 5)]}
    assert positions_of(story.journal.released) == [1]
    assert (story.queue.ready, story.queue.unacked, story.queue.size_bytes) == (2, 0, 20)


def test_higher_priorities_go_first() -> None:
    story = Story(max_priority=2)
    for priority in (0, 9, 1):
        story.publish(1, priority=priority)
    story.consumer()
    assert story.take() == [("c", 2, 0, 1), ("c", 1, 0, 1), ("c", 0, 0, 1)]


def test_requeued_messages_come_again_in_their_place_and_say_so() -> None:
    story = Story()
    consumer = story.consumer(prefetch=4)
    story.publish(6)
    story.take()
    story.queue.settle(consumer, 1, 3, "requeue")
    got = story.queue.take(0)
    assert [(one.tag, one.first, one.count, one.returned) for one in got] == [(4, 1, 2, 1)]
    assert story.journal.returned == {0: [(1, 3)]}


def test_what_a_vanished_consumer_had_goes_to_the_next_in_order() -> None:
    story = Story()
    gone, other = story.consumer("gone", prefetch=2), story.consumer("other", prefetch=2)
    story.publish(6)
    assert story.take() == [("gone", 0, 0, 2), ("other", 0, 2, 2)]
    story.queue.unsubscribe(gone, 7)
    assert story.queue.idle_since_us() is None
    story.queue.settle(other, 0, 2, "ack")
    other.prefetch = 0
    assert story.take() == [("other", 0, 0, 2), ("other", 0, 4, 2)]


@pytest.mark.parametrize("exchange", [None, "dead"])
def test_a_message_that_came_back_too_often_is_dead(exchange: str | None) -> None:
    story = Story(delivery_limit=1, dead_letter_exchange=exchange)
    consumer = story.consumer()
    story.publish(2)
    for tag in (0, 2):
        story.take()
        story.queue.settle(consumer, tag, tag + 1, "requeue")
    assert story.take() == []
    assert story.queue.unacked == 1
    if exchange is None:
        assert story.journal.dead == []
        assert story.journal.settled == {0: [(0, 1)]}
        return
    (dead,) = story.journal.dead
    assert dead == DeadRange("orders", 0, 0, 1, "delivery_limit")
    story.queue.settle_dead(dead)
    assert story.journal.settled == {}, "it stands in the record behind the copy"
    assert (story.queue.ready, story.queue.unacked, story.queue.size_bytes) == (
        0,
        1,
        story.queue.lanes[0].size_bytes,
    )


def test_what_is_too_much_drops_the_oldest_of_the_lowest_priority() -> None:
    story = Story(max_priority=1, max_length=4, dead_letter_exchange="dead")
    story.publish(2, priority=1)
    story.publish(2)
    story.publish(3, priority=1)
    assert story.journal.dead == [
        DeadRange("orders", 0, 0, 2, "maxlen"),
        DeadRange("orders", 1, 0, 1, "maxlen"),
    ]
    assert story.queue.ready == 4


@pytest.mark.parametrize("limit", [40, 45, 49])
def test_bytes_drop_no_more_messages_than_they_have_to(limit: int) -> None:
    story = Story(max_length_bytes=limit)
    story.publish(4)
    story.publish(2)
    assert story.queue.ready == 4
    assert story.journal.settled == {0: [(0, 2)]}


@pytest.mark.parametrize("outcome", ["requeue", "release"])
@pytest.mark.parametrize("limits", [{"max_length": 4}, {"max_length_bytes": 40}])
def test_what_comes_back_to_a_full_queue_drops_the_oldest(
    outcome: str, limits: dict[str, int]
) -> None:
    """Found: a consumer that vanished left more than there may be, until another message came."""
    story = Story(dead_letter_exchange="dead", **limits)
    gone = story.consumer(prefetch=4)
    story.publish(4)
    story.take()
    story.publish(3)
    story.queue.settle(gone, 2, 3, outcome)
    assert not story.journal.dead, "there is room for one"
    story.queue.unsubscribe(gone, 0, outcome)
    assert story.journal.dead == [DeadRange("orders", 0, 0, 3, "maxlen")]
    assert story.queue.ready == 4


def test_room_counts_what_is_on_its_way_to_the_disk() -> None:
    story = Story(max_length=3, overflow=REJECT_PUBLISH)
    lane = story.queue.lane_for(0)
    assert story.queue.accepts(3, 30)
    assert story.queue.announce(lane, 2, 20) == 0
    assert story.queue.accepts(1, 10)
    assert not story.queue.accepts(2, 20)
    story.queue.enqueue(lane, 0, 2, 1, 20, 0, now_us=0)
    assert not story.queue.accepts(2, 20)
    story.consumer()
    story.take()
    assert story.queue.accepts(3, 30), "unacked ones do not count, as in RabbitMQ"


def test_expired_messages_are_not_delivered() -> None:
    story = Story(ttl_s=0.5, dead_letter_exchange="dead")
    story.publish(2)
    story.now_us = 100_000
    story.publish(2, expires_us=200_000)
    story.now_us = 499_999
    assert story.queue.expire(story.now_us) == 0, "behind the head nothing expires"
    story.now_us = 500_000
    story.consumer()
    assert story.take() == []
    assert story.journal.dead == [DeadRange("orders", 0, 0, 4, "expired")]
    assert story.queue.ready == 0


def test_a_paused_consumer_and_a_limited_call_leave_the_rest() -> None:
    story = Story()
    consumer = story.consumer()
    story.publish(1)
    story.publish(2)
    assert len(story.queue.take(0, 1)) == 1
    consumer.paused = True
    assert story.take() == []
    assert story.queue.ready == 2


def test_whether_anybody_uses_it() -> None:
    story = Story()
    story.queue.note_use(5)
    assert story.queue.idle_since_us() == 5
    consumer = story.consumer()
    assert story.queue.idle_since_us() is None
    story.queue.unsubscribe(consumer, 9)
    assert story.queue.idle_since_us() == 9


def test_recovery_drops_nothing_for_length() -> None:
    """What was settled may stand later in the log; until then there seem to be too many."""
    story = Story(max_length=2)
    lane = story.queue.lane_for(0)
    for at in range(4):
        story.queue.enqueue(lane, at, 1, at, 10, 0, now_us=0)
    lane.settle(2, 4, recorded=True)
    lane.add_returns([(0, 1)])
    story.queue.end_recovery(9)
    assert story.queue.ready == 2
    assert not story.journal.settled
    assert [(one.first, one.returned) for one in story.queue.take(9)] == []
    story.consumer()
    assert [(one.first, one.returned) for one in story.queue.take(9)] == [(0, 1), (1, 0)]


def test_ten_thousand_idle_queues_take_less_than_thirty_megabytes() -> None:
    journal = Journal()
    definitions = [QueueDefinition(name=f"orders-{at}") for at in range(1000)]
    tracemalloc.start()
    queues = [Queue(one, [Lane(at, journal, logged=True)]) for at, one in enumerate(definitions)]
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(queues) == 1000
    assert size_bytes < 2500 * 1000


def test_what_came_with_a_time_of_its_own_expires_after_a_restart_too() -> None:
    before, after = Story(), Story()
    before.publish(2, expires_us=70_000)
    after.queue.lanes[0].load(*encoded(before.queue.lanes[0]))
    after.queue.end_recovery(9)
    assert after.queue.expire(69_999) == 0
    assert after.queue.expire(70_000) == 2
