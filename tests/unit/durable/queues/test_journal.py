"""What gathers until the vhost takes it."""

from __future__ import annotations

from durable.queues.journal import EXPIRED, MAXLEN, DeadRange, Journal
from durable.queues.runs import Records


def test_neighbours_are_one_range() -> None:
    journal = Journal()
    for start, end in [(5, 6), (6, 9), (3, 5), (20, 21)]:
        journal.note_settled(1, start, end)
    journal.note_settled(2, 9, 10)
    assert journal.settled == {1: [(3, 9), (20, 21)], 2: [(9, 10)]}


def test_what_came_back_twice_is_told_twice() -> None:
    journal = Journal()
    journal.note_returned(1, 0, 4)
    journal.note_returned(1, 0, 4)
    assert journal.returned == {1: [(0, 4), (0, 4)]}


def test_dead_ones_of_a_kind_are_one() -> None:
    journal = Journal()
    journal.note_dead("orders", 1, 0, 4, EXPIRED)
    journal.note_dead("orders", 1, 4, 5, EXPIRED)
    journal.note_dead("orders", 1, 5, 6, MAXLEN)
    journal.note_dead("orders", 2, 6, 7, MAXLEN)
    assert journal.dead == [
        DeadRange("orders", 1, 0, 5, EXPIRED),
        DeadRange("orders", 1, 5, 6, MAXLEN),
        DeadRange("orders", 2, 6, 7, MAXLEN),
    ]


def test_it_is_taken_once() -> None:
    journal = Journal()
    assert not journal
    journal.note_settled(1, 0, 3)
    journal.released.append(Records(range(1, 2), 3, 9))
    journal.note_returned(1, 5, 6)
    journal.note_dead("orders", 1, 4, 5, EXPIRED)
    assert journal
    settled, returned = journal.take_settled()
    assert (settled, returned) == ({1: [(0, 3)]}, {1: [(5, 6)]})
    assert journal
    assert journal.take_released() == [Records(range(1, 2), 3, 9)]
    assert not journal
    assert journal.take_dead() == [DeadRange("orders", 1, 4, 5, EXPIRED)]
    journal.note_settled(1, 3, 4)
    assert settled == {1: [(0, 3)]}
    assert journal.take_settled() == ({1: [(3, 4)]}, {})
    assert (journal.take_released(), journal.take_dead()) == ([], [])
