"""Which of several subscriptions gets a message, and what is told to be missing when it is another one."""

from __future__ import annotations

import pytest

from mesh.protocol.batch import encode_lost
from mesh.protocol.frame import Kind
from mesh.protocol.inbox import Inbox
from mesh.protocol.interest import DROP_NEWEST
from mesh.protocol.sharing import Sharing
from mesh.protocol.stream_gaps import EPOCHS_MAX
from tests.machines import OTHER, make_batch

from .patterns_bench import Bench


class Sharers(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.sharing = Sharing()

    def share(self, pattern: str, *after: Inbox, limit: int = 1 << 20) -> Inbox:
        inbox = self.subscribe(pattern, DROP_NEWEST, limit)
        self.patterns.subscriptions.share(inbox, self.sharing, after)
        return inbox

    def close(self, inbox: Inbox) -> None:
        self.patterns.subscriptions.unsubscribe(inbox)
        self.patterns.subscriptions.hand_over(inbox)

    def come(self, first: int, count: int = 1, *, epoch: int = 1) -> None:
        batch = make_batch(first, [b"x"] * count, epoch=epoch)
        self.record(Kind.BATCH, 0, batch.raw())

    def lose(self, first: int, count: int, *, epoch: int = 1) -> None:
        self.record(Kind.BATCH, 0, encode_lost(OTHER, epoch, first, 0, b"t", count))


def told(inbox: Inbox) -> list[tuple[int, int, int]]:
    """(missing before it, first, how many) of each batch that waits."""
    found = []
    while inbox:
        delivery = inbox.take()
        found.append((delivery.lost, delivery.sequence, len(delivery)))
    return found


def test_the_one_that_began_first_gets_it_and_then_the_next() -> None:
    bench = Sharers()
    first, second, third = (bench.share(pattern) for pattern in ("t", ">", "*"))
    alone, other = bench.subscribe("t"), bench.share("u")
    bench.come(0)
    bench.close(second)
    bench.come(1)
    bench.close(first)
    bench.come(2)
    fourth = bench.share("t")
    bench.come(3)
    assert told(first) == [(0, 0, 1), (0, 1, 1)]
    assert told(third) == [(0, 2, 1), (0, 3, 1)]
    assert told(alone) == [(0, number, 1) for number in range(4)]
    assert not any(told(one) for one in (second, other, fourth))


def test_the_next_one_tells_what_is_missing_behind_the_one_before() -> None:
    bench = Sharers()
    first = bench.share("t", limit=250)
    second, alone = bench.share(">"), bench.subscribe("t")
    for number in range(20):
        bench.come(2 * number)
    assert told(alone)[-1] == (1, 38, 1)
    bench.close(first)
    bench.come(50)
    found = told(first)
    (_, last, _) = found[-1]
    assert found == [(0, 0, 1), *((1, number, 1) for number in range(2, last + 1, 2))]
    assert last < 38
    assert told(second) == [(50 - last - 1, 50, 1)]
    assert told(alone) == [(11, 50, 1)]


def test_one_that_only_ends_hands_nothing_over() -> None:
    """Where all end, each would hand what all before it had to the next."""
    bench = Sharers()
    first, second = bench.share("t"), bench.share(">")
    bench.come(0)
    bench.patterns.subscriptions.unsubscribe(first)
    assert bench.sharing.members == {second}
    bench.come(5)
    assert told(second) == [(0, 5, 1)]


def test_where_a_batch_was_cut_the_next_one_tells_the_rest() -> None:
    bench = Sharers()
    first = bench.share("t", limit=250)
    second = bench.share("t")
    bench.come(0, 100)
    bench.close(first)
    bench.come(100)
    ((lost, sequence, count),) = told(first)
    assert (lost, sequence) == (0, 0)
    assert 0 < count < 100
    assert told(second) == [(100 - count, 100, 1)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_note_of_losses_that_was_ahead_of_messages_counts_once(*, waits: bool) -> None:
    """It travels on the other lane: what was sent before it may come behind it, and to the next one."""
    bench = Sharers()
    first = bench.share("t")
    second = bench.share("t")
    bench.come(0)
    if not waits:
        assert told(first) == [(0, 0, 1)]
    bench.lose(3, 4)
    bench.close(first)
    bench.come(1, 2)
    bench.come(7)
    assert told(first) == ([(0, 0, 1)] if waits else [])
    assert told(second) == [(0, 1, 2), (4, 7, 1)]


def in_the_second_epoch() -> tuple[Sharers, Inbox, Inbox]:
    """Of two that share the first has a message of each epoch; three are missing between them."""
    bench = Sharers()
    first = bench.share("t")
    second = bench.share("t")
    bench.come(0)
    bench.lose(1, 3)
    bench.come(0, epoch=2)
    return bench, first, second


def test_what_is_missing_at_the_end_of_an_epoch_is_told_once() -> None:
    """By the one that has messages of a later one still."""
    bench, first, second = in_the_second_epoch()
    bench.close(first)
    bench.come(1, epoch=2)
    assert told(first) == [(0, 0, 1), (3, 0, 1)]
    assert told(second) == [(0, 1, 1)]


def test_what_is_missing_in_more_epochs_than_are_told_apart_is_told_once() -> None:
    """That of the latest is told by the next one."""
    bench, first, second = in_the_second_epoch()
    for epoch in range(3, EPOCHS_MAX + 2):
        bench.lose(0, 1, epoch=epoch)
    bench.close(first)
    bench.come(0, epoch=EPOCHS_MAX + 2)
    assert told(first) == [(0, 0, 1), (3, 0, 1)]
    assert told(second) == [(EPOCHS_MAX - 1, 0, 1)]


def test_a_new_one_tells_what_came_while_there_was_none() -> None:
    bench = Sharers()
    first = bench.share("t")
    bench.come(0)
    bench.close(first)
    bench.come(1, 3)
    second = bench.share(">", first)
    third = bench.share("t", first)
    bench.come(4)
    bench.close(second)
    bench.come(5)
    assert [told(one) for one in (first, second, third)] == [[(0, 0, 1)], [(3, 4, 1)], [(0, 5, 1)]]


def test_a_new_one_leaves_to_others_what_goes_on_there() -> None:
    bench = Sharers()
    first = bench.share("t")
    second = bench.share("t")
    bench.come(0)
    bench.close(first)
    bench.come(1)
    assert told(second) == [(0, 1, 1)]
    bench.share("t", first)
    bench.come(2)
    assert told(second) == [(0, 2, 1)]


def test_what_the_node_publishes_itself_goes_to_one() -> None:
    bench = Sharers()
    first, second = bench.share("t"), bench.share("*")
    bench.publish("t", b"x")
    bench.close(first)
    bench.publish("t", b"x")
    assert [told(one) for one in (first, second)] == [[(0, 0, 1)], [(0, 1, 1)]]
