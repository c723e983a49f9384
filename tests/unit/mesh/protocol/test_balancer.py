from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from mesh.protocol.balancer import SERVICE_S_MIN, SMOOTHING, Candidate, choose_of_two
from tests.machines import make_link


class Dice(Random):
    """Throws what it is told."""

    def __init__(self, throws: Iterable[float]) -> None:
        self._throws = iter(throws)

    def random(self) -> float:
        return next(self._throws)


def member(name: int, *, outstanding: int = 0, queue: int = 0, service_s: float = 0.0) -> Candidate:
    return Candidate(bytes([name]) * 16, make_link(), outstanding, queue, service_s)


def test_the_first_observation_counts_in_full_and_later_ones_are_smoothed() -> None:
    one = member(1)
    one.observe(0.5, 3)
    assert (one.service_s, one.queue) == (0.5, 3)
    one.observe(1.5, 0)
    assert (one.service_s, one.queue) == (0.5 + SMOOTHING, 0)


def test_what_nothing_renews_counts_half_after_each_heartbeat() -> None:
    """Found: the slowest of three idle members by a hair, or after one long pause, was never asked again."""
    one, other = member(1), member(2, service_s=0.3)
    one.observe(1.0, 3)
    one.observe_heartbeat(5)
    assert (one.service_s, one.queue) == (1.0, 5)
    one.observe_heartbeat(0)
    one.observe_heartbeat(0)
    assert one.service_s == 0.25
    assert choose_of_two([one, other], Dice([0.0, 0.0])) is one, "it is tried again"
    one.observe(1.0, 0)
    assert choose_of_two([one, other], Dice([0.0, 0.0])) is other
    one.observe_heartbeat(0)
    assert one.service_s == 0.25 + SMOOTHING * 0.75


@pytest.mark.parametrize(
    ("one", "score"),
    [
        (member(1, service_s=2.0), 2.0),
        (member(1, outstanding=2, queue=3, service_s=2.0), 12.0),
        (member(1, outstanding=1), 0.2),
    ],
)
def test_score_is_the_time_until_an_answer(one: Candidate, score: float) -> None:
    assert one.score(0.1) == score


def test_nobody_is_infinitely_fast() -> None:
    assert member(1, outstanding=9).score(0.0) == 10 * SERVICE_S_MIN


def test_one_candidate_needs_no_dice() -> None:
    one = member(1)
    assert choose_of_two([one], Dice([])) is one


@pytest.mark.parametrize(
    ("throws", "pair"),
    [((0.0, 0.0), (0, 1)), ((0.0, 0.99), (0, 2)), ((0.4, 0.0), (1, 0)), ((0.99, 0.99), (2, 1))],
)
def test_the_better_of_two_different_ones(
    throws: tuple[float, float], pair: tuple[int, int]
) -> None:
    for better in pair:
        members = [member(n, outstanding=9 * (n != better), service_s=1.0) for n in range(3)]
        assert choose_of_two(members, Dice(throws)) is members[better]


def test_of_equals_the_first() -> None:
    members = [member(n) for n in range(3)]
    assert choose_of_two(members, Dice([0.9, 0.0])) is members[2]


def test_one_nobody_has_asked_yet_counts_as_the_other() -> None:
    known, new = member(0, service_s=1.0), member(1)
    assert choose_of_two([new, known], Dice([0.9, 0.0])) is known, "equal: the first one thrown"
    new.outstanding = 1
    assert choose_of_two([known, new], Dice([0.9, 0.0])) is known
