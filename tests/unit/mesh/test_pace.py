"""Pace: what comes one by one leaves at once, what comes together leaves together."""

from __future__ import annotations

from mesh.pace import APART_S, Pace


def times(pace: Pace, gaps_s: list[float]) -> list[bool]:
    """Whether each of these messages, so far apart, leaves at once; the pump's turn comes after each."""
    now_s, left = 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        left.append(pace.leaves_now(now_s))
        if not left[-1]:
            pace.left(1, now_s)
    return left


def test_messages_that_come_one_by_one_leave_at_once() -> None:
    assert times(Pace(), [2 * APART_S] * 5) == [True] * 5


def test_a_second_message_close_behind_waits_for_others() -> None:
    assert times(Pace(), [1.0, APART_S / 2]) == [True, False]


def test_pairs_leave_together_from_the_second_pair_on() -> None:
    pace = Pace()
    assert pace.leaves_now(1.0)
    assert not pace.leaves_now(1.0)  # The first pair is torn: nobody knew that it was one.
    pace.left(1, 1.0)
    for now_s in (2.0, 3.0, 4.0):
        assert not pace.leaves_now(now_s)
        pace.left(2, now_s)


def test_after_company_the_first_one_alone_tells_that_it_is_over() -> None:
    pace = Pace()
    pace.left(100, 1.0)
    assert not pace.leaves_now(2.0)
    pace.left(1, 2.0)
    assert pace.leaves_now(3.0)
