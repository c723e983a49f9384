"""What a consumer held goes back at once as it would message by message, in the order of its tags."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.definitions import QueueDefinition
from durable.queues.consumers import Consumer
from durable.queues.journal import DELIVERY_LIMIT, REJECTED, DeadRange, Journal, Spans
from durable.queues.lane import Lane
from durable.queues.queue import ACK, REJECT, RELEASE, REQUEUE, Queue
from durable.queues.runs import Records
from tests.queues import encoded, positions_of

ANY_OUTCOME = st.sampled_from([ACK, REJECT, RELEASE, REQUEUE, REQUEUE])
settlements = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(1, 4), ANY_OUTCOME),
    min_size=3,
    max_size=12,
)
"""Which consumer, first tag, how many, and what became of them."""


class Held:
    """A queue of which two consumers hold everything, message by message in turn, and some again."""

    def __init__(
        self, counts: list[int], settled: list[tuple[int, int, int, str]], **options: Any
    ) -> None:
        definition = QueueDefinition(name="orders", max_priority=1, **options)
        self.journal = Journal()
        lanes = [Lane(at, self.journal, logged=True) for at in range(2)]
        self.queue = Queue(definition, lanes)
        self.consumers = [Consumer(one, prefetch=0, prefetch_bytes=0) for one in "ab"]
        for one in self.consumers:
            self.queue.subscribe(one)
        for position, count in enumerate(counts):
            lane, size = self.queue.lane_for(position % 5 // 4), 7 * count + position // 4 % 3
            first = self.queue.announce(lane, count, size)
            self.queue.enqueue(lane, first, count, position, size, 0, now_us=0)
        self.queue.take(0)
        for which, start, number, outcome in settled:
            self.queue.settle(self.consumers[which], start, start + number, outcome)
            self.queue.take(0)

    def state(self) -> dict[str, Any]:
        """All there is to know of it."""
        queue, journal = self.queue, self.journal
        return {
            "lanes": [
                (one.ready, one.ready_bytes, one.size_bytes, one.ready_ranges(), encoded(one))
                for one in queue.lanes
            ],
            "consumers": [(one.unacked, one.unacked_bytes) for one in self.consumers],
            "queue": (queue.unacked, queue.died, queue.counts.dropped, queue.counts.acked),
            "settled": _each(journal.settled),
            "returned": _each(journal.returned),
            "released": sorted(positions_of(journal.released)),
            "dead": [
                (one.lane, at, one.reason) for one in journal.dead for at in range(one.start, one.end)
            ],
        }  # fmt: skip

    def redelivered(self) -> list[tuple[int, int, int, int]]:
        """Lane, first sequence, count and returns, as the next one gets it."""
        for one in self.consumers:
            one.paused = True
        self.queue.subscribe(Consumer("c", prefetch=0, prefetch_bytes=0))
        return [(one.lane.id, one.first, one.count, one.returned) for one in self.queue.take(0)]


def _each(spans_of: dict[int, Spans]) -> Counter[tuple[int, int]]:
    """Lane and sequence, and how often."""
    return Counter(
        (lane, at) for lane, spans in spans_of.items() for span in spans for at in range(*span)
    )


@given(
    counts=st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=8, max_size=40), settled=settlements,
    outcome=ANY_OUTCOME, limit=st.sampled_from([None, 0, 1, 2, 9]),
    exchange=st.sampled_from([None, "dead"]),
)  # fmt: skip
def test_all_at_once_is_as_one_by_one(
    counts: list[int], settled: list[tuple[int, int, int, str]], outcome: str, limit: int | None,
    exchange: str | None,
) -> None:  # fmt: skip
    options = {"delivery_limit": limit, "dead_letter_exchange": exchange}
    whole, single = Held(counts, settled, **options), Held(counts, settled, **options)
    assert whole.state() == single.state()
    for at in range(2):
        consumer, other = whole.consumers[at], single.consumers[at]
        count = whole.queue.settle(consumer, 0, consumer.next_tag, outcome)
        tags = range(other.next_tag)
        assert count == sum(single.queue.settle(other, tag, tag + 1, outcome) for tag in tags)
        assert whole.state() == single.state()
    assert whole.redelivered() == single.redelivered()


@pytest.mark.parametrize("limit", [None, 3])
def test_messages_that_came_alone_go_back_as_one_range(limit: int | None) -> None:
    """Whatever the order in which they came; in the log, too."""
    twice = [(0, tag, 1, RELEASE) for tag in range(0, 40, 2)]
    held = Held([1] * 100, twice, delivery_limit=limit)
    for one in held.consumers:
        held.queue.unsubscribe(one, 0, REQUEUE)
    low, high = held.queue.lanes
    assert [one.ready_ranges() for one in (low, high)] == [[(0, 80)], [(0, 20)]]
    assert list(low.returns_between(0, 80)) == [(0, 80, 1)]
    assert list(high.returns_between(0, 20)) == [(0, 20, 1)]


def test_what_one_consumer_held_is_written_as_one_range() -> None:
    """Also what it has for the second time, under later tags than its neighbours."""
    again = [(0, tag, 1, RELEASE) for tag in range(1, 20, 3)]
    held = Held([1] * 20, [(1, 0, 40, RELEASE), *again], single_active_consumer=True)
    holder = held.consumers[0]
    assert holder.unacked == 20
    held.queue.unsubscribe(holder, 0, REQUEUE)
    assert held.journal.returned == {0: [(0, 16)], 1: [(0, 4)]}


def test_runs_that_are_settled_together_are_let_go_of_together() -> None:
    held = Held([1] * 4, [], single_active_consumer=True)
    held.queue.settle(held.consumers[0], 0, 4, ACK)
    assert held.journal.settled == {0: [(0, 4)]}
    assert held.journal.released == [Records(range(4), 1, 7)]


@pytest.mark.parametrize(("outcome", "reason"), [(REJECT, REJECTED), (REQUEUE, DELIVERY_LIMIT)])
def test_the_dead_stand_in_the_order_in_which_they_were_delivered(
    outcome: str, reason: str
) -> None:
    again = [(0, 1, 1, RELEASE)]
    options = {"delivery_limit": 0, "dead_letter_exchange": "dead"}
    held = Held([1] * 4, again, single_active_consumer=True, **options)
    held.queue.unsubscribe(held.consumers[0], 0, outcome)
    assert held.journal.dead == [
        DeadRange("orders", 0, start, end, reason) for start, end in ((0, 1), (2, 4), (1, 2))
    ]
