"""Lanes in which nothing has been: there may be a hundred thousand of them, so they take next to nothing."""

from __future__ import annotations

import gc
from array import array

from durable.queues.journal import Journal
from durable.queues.lane import Lane
from tests.queues import encoded


def arrays_of(one: object) -> set[int]:
    """Ids of all arrays that it, and what it has, refers to."""
    found: set[int] = set()
    ahead = [one]
    while ahead:
        there = ahead.pop()
        if isinstance(there, array):
            found.add(id(there))
        elif type(there).__module__.startswith("durable.queues"):
            ahead += gc.get_referents(there)
    return found


def used(number: int) -> Lane:
    """Of which every part has been used: messages that expire, were settled out of order, and came back."""
    lane = Lane(number, Journal(), logged=True)
    for first in range(3):
        lane.enqueue(first, 1, 10 + first, 100, 1_000_000, expires_us=5 + first)
    for _ in range(2):
        lane.take()
    lane.settle(1, 2)
    lane.requeue([(0, 1)], counted=True)
    return lane


def test_what_is_idle_has_no_arrays_of_its_own() -> None:
    """Found: thirteen each, which Python's garbage collector walked one by one."""
    idle = [Lane(number, Journal(), logged=True) for number in range(3)]
    assert arrays_of(idle[0]) == arrays_of(idle[1]) == arrays_of(idle[2])


def test_what_is_used_shares_none_and_leaves_nothing_in_others() -> None:
    empty = encoded(Lane(1, Journal(), logged=True))
    one, other = used(1), used(2)
    loaded = Lane(3, Journal(), logged=True)
    loaded.load(*encoded(one))
    assert encoded(one) == encoded(other) == encoded(loaded) != empty
    one.enqueue(3, 1, 13, 100, 2_000_000, expires_us=9)
    loaded.enqueue(3, 1, 99, 100, 3_000_000, expires_us=9)
    assert encoded(other) == encoded(used(4))
    assert encoded(Lane(5, Journal(), logged=True)) == empty
