"""Coalescer: what comes one by one leaves at once, what comes together leaves together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.coalescing import Coalescer


def turn(coalescer: Coalescer, published: int) -> int:
    """How many of them left at once; the pump took the others in its turn."""
    at_once = sum(coalescer.sends_at_once() for _ in range(published))
    coalescer.turn_ended(published)
    return at_once


def test_messages_that_come_one_by_one_leave_at_once() -> None:
    coalescer = Coalescer()
    assert [turn(coalescer, 1) for _ in range(5)] == [1] * 5


def test_a_second_message_of_the_same_turn_waits_for_others() -> None:
    """However long after the first: a loop that is busy sends thousands in one turn."""
    coalescer = Coalescer()
    assert [coalescer.sends_at_once() for _ in range(3)] == [True, False, False]


def test_pairs_leave_together_from_the_second_pair_on() -> None:
    coalescer = Coalescer()
    assert turn(coalescer, 2) == 1  # The first pair is torn: nobody knew that it was one.
    assert [turn(coalescer, 2) for _ in range(3)] == [0] * 3


def test_after_company_the_first_one_alone_tells_that_it_is_over() -> None:
    coalescer = Coalescer()
    turn(coalescer, 100)
    assert [turn(coalescer, 1) for _ in range(3)] == [0, 1, 1]


def test_turns_in_which_nothing_left_say_nothing() -> None:
    alone, company = Coalescer(), Coalescer()
    turn(company, 100)
    for coalescer in (alone, company):
        turn(coalescer, 0)
    assert turn(alone, 1) == 1
    assert turn(company, 1) == 0


@given(st.lists(st.integers(0, 5), max_size=30))
def test_one_at_most_leaves_at_once_in_a_turn_and_only_after_one_alone(sizes: list[int]) -> None:
    coalescer, before = Coalescer(), 1
    for size in sizes:
        at_once = turn(coalescer, size)
        assert at_once == (size > 0 and before == 1)
        before = size or before
