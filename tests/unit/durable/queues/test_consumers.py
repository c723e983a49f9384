"""Unacked by tag against a dict; whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import QueueInUse
from durable.queues.consumers import Consumer, Consumers
from durable.queues.journal import Journal
from durable.queues.lane import UNLIMITED, Lane
from durable.queues.runs import Run

LANE = Lane(1, Journal(), logged=True)


def consumer(name: str = "c", **options: Any) -> Consumer:
    return Consumer(name, **{"prefetch": 0, "prefetch_bytes": 0, **options})


spans = st.tuples(st.integers(0, 60), st.integers(0, 60))


@given(st.lists(st.one_of(st.integers(1, 9), spans), max_size=40))
def test_tags_agree_with_a_dict(steps: list[int | tuple[int, int]]) -> None:
    """An int is a delivery of so many messages, a pair settles tags."""
    one, dumb, position = consumer(), dict[int, int](), 0
    for step in steps:
        if isinstance(step, int):
            run = Run(position, step, 0, 10 * step)
            tag = one.add(LANE, position, step, run, run.size_bytes)
            dumb.update((tag + at, position + at) for at in range(step))
            position += step + 5
        else:
            removed = one.remove(*step)
            found = {
                piece.tag + at: piece.first + at for piece in removed for at in range(piece.count)
            }
            assert found == {tag: dumb.pop(tag) for tag in range(*step) if tag in dumb}
        assert (one.unacked, one.unacked_bytes) == (len(dumb), 10 * len(dumb))


def test_settled_deliveries_leave_no_memory_behind() -> None:
    one = consumer()
    for at in range(1000):
        one.add(LANE, at, 1, Run(at, 1, at, 5), 5)
        one.remove(0, at)
    assert len(one._tags) < 200


def test_credit_is_what_prefetch_leaves() -> None:
    one = consumer(prefetch=3, prefetch_bytes=100)
    assert one.credit() == (3, 100)
    one.add(LANE, 0, 2, Run(0, 2, 0, 120), 120)
    assert one.credit() == (1, 0)
    one.remove(0, 1)
    assert one.credit() == (2, 40)
    one.paused = True
    assert one.credit() == (0, 0)
    assert consumer().credit() == (UNLIMITED, UNLIMITED)


def turns(consumers: Consumers, count: int) -> list[str]:
    return [got[0].id if (got := consumers.next()) else "-" for _ in range(count)]


def test_equals_take_turns_and_the_highest_priority_comes_first() -> None:
    consumers = Consumers(single_active=False)
    a, b, low = consumer("a", priority=1), consumer("b", priority=1), consumer("low")
    for one in (low, a, b):
        consumers.add("q", one)
    assert turns(consumers, 4) == ["a", "b", "a", "b"]
    a.paused = True
    assert turns(consumers, 2) == ["b", "b"]
    b.paused = True
    assert turns(consumers, 2) == ["low", "low"]
    low.paused = True
    assert turns(consumers, 1) == ["-"]
    consumers.remove(a)
    assert [one.id for one in consumers] == ["b", "low"]


def test_of_little_each_equal_gets_a_share() -> None:
    consumers = Consumers(single_active=False)
    consumers.add("q", consumer("a", priority=1))
    assert consumers.share(7) == 7
    consumers.add("q", consumer("b", priority=1))
    consumers.add("q", consumer("low"))
    assert [consumers.share(ready) for ready in (0, 1, 7, 8)] == [0, 1, 4, 4]
    alone = Consumers(single_active=True)
    for name in ("a", "b"):
        alone.add("q", consumer(name))
    assert alone.share(7) == 7


def test_of_a_single_active_consumer_the_next_takes_over_when_it_leaves() -> None:
    consumers = Consumers(single_active=True)
    first, second, third, high = (
        consumer("1"), consumer("2"), consumer("3"), consumer("high", priority=4),
    )  # fmt: skip
    for one in (first, second, third, high):
        consumers.add("q", one)
    assert turns(consumers, 2) == ["1", "1"]
    assert consumers.active is first
    consumers.remove(second)
    consumers.remove(first)
    assert consumers.active is high
    assert turns(consumers, 1) == ["high"]
    high.paused = True
    assert turns(consumers, 1) == ["-"], "nobody stands in for it"
    consumers.remove(high)
    assert turns(consumers, 1) == ["3"]
    consumers.remove(third)
    assert turns(consumers, 1) == ["-"]
    assert consumers.active is None
    assert len(consumers) == 0


@pytest.mark.parametrize("first", [True, False])
def test_an_exclusive_consumer_is_alone(first: bool) -> None:
    consumers = Consumers(single_active=False)
    consumers.add("q", consumer("a", exclusive=first))
    with pytest.raises(QueueInUse, match="'b' cannot consume queue 'q', which has 1") as caught:
        consumers.add("q", consumer("b", exclusive=not first))
    assert (caught.value.queue, caught.value.consumer, caught.value.consumers) == ("q", "b", 1)
    assert len(consumers) == 1
