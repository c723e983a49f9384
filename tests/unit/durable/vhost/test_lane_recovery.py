"""A lane that is filled in whatever order records come, and what that costs."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from durable.queues.journal import Journal
from durable.queues.lane import Lane
from durable.vhost.lane_recovery import FIELDS, LaneRecovery
from tests.queues import memory_bytes

RUNS, SIZE = 20_000, 8
"""Runs, and bytes of a number."""


def filled(firsts: list[int]) -> LaneRecovery:
    """Runs of two messages; each stands where it came."""
    one = LaneRecovery(Lane(1, Journal(), logged=True))
    for position, first in enumerate(firsts):
        one.add_run(2 * first, 2, position, 10, 1_000_000 + first, 0)
    return one


@given(st.lists(st.integers(0, 12), max_size=40))
def test_the_later_of_two_counts_and_all_are_in_order(firsts: list[int]) -> None:
    """Oracle: a dict."""
    one = filled(firsts)
    one.finish()
    where = {2 * first: position for position, first in enumerate(firsts)}
    found = [(run.first, run.position) for run in one.lane.index.runs(0, 100)]
    assert found == sorted(where.items())
    assert one.lane.ready == 2 * len(where)


def test_what_waits_for_a_hole_costs_its_numbers_and_little_more() -> None:
    """Found: six times as much, 306 MB for a million, when it was sorted as tuples."""
    one = LaneRecovery(Lane(1, Journal(), logged=True))
    tracemalloc.start()
    try:
        for number in range(1, RUNS):
            one.add_run(number, 1, 2 * number, 100, 1_000_000 + number, 0)
            if not number % 50:  # Compaction goes on meanwhile.
                one.add_run(number // 50, 1, 2 * number + 1, 100, 1_000_000, 0)
        one.add_run(0, 1, 2 * RUNS, 100, 1_000_000, 0)
        one.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.lane.ready == RUNS
    index = memory_bytes(one.lane.index)
    assert peak - index < 1.5 * RUNS * FIELDS * SIZE
