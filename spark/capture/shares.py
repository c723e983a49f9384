"""How a batch of a stream is shared out among tasks: alike when it is planned again.

A plan is cut at blocks and by sizes. Both depend on when the log was looked at, so the sink, which numbers
rows by task, would take one row for another after a restart. What is kept with a batch's end does not:

    log positions   start ......... cut ......... cut ......... end      a task for each span
    ordering=queue  lane % groups                                        a task for each group
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .plan import (
    NO_LIMIT,
    ByteRange,
    LaneTable,
    Selected,
    Work,
    carried_ranges,
    segment_ranges,
    work_of,
    work_of_lanes,
)


class Shares(NamedTuple):
    """Of one batch."""

    cuts: tuple[int, ...] = ()
    """Log positions with which tasks begin, but for the first one."""
    groups: int = 0
    """Of lanes, with `ordering=queue`; else 0."""


def shares_of(works: Sequence[Work], start: int, *, ordered: bool) -> Shares:
    """As a plan has it, of log positions from `start` on."""
    if ordered:
        return Shares(groups=max(1, len(works)))
    begins = {one.ranges[0].order for one in works[1:]}
    return Shares(tuple(sorted(one for one in begins if one > start)))


def shared(selected: Selected, shares: Shares) -> list[Work]:
    """The plan for it. A task that has nothing to read any more stays: those after it keep their numbers."""
    found = _between(selected, shares.cuts)
    if shares.groups:
        (whole,) = found
        return [
            work_of_lanes(whole, _group(selected.lanes, number, shares.groups), first=number == 0)
            for number in range(shares.groups)
        ]
    return [work_of(ranges, selected.lanes) for ranges in found]


def _group(table: LaneTable, number: int, groups: int) -> LaneTable:
    return {lane: offsets for lane, offsets in table.items() if lane % groups == number}


def _between(selected: Selected, cuts: Sequence[int]) -> list[list[ByteRange]]:
    edges = [selected.start, *cuts, selected.end]
    found = [
        segment_ranges(selected._replace(start=low, end=high), NO_LIMIT)
        for low, high in pairwise(edges)
    ]
    for one in carried_ranges(selected, NO_LIMIT, cuts):
        found[bisect_right(cuts, one.order)].append(one)
    return [sorted(ranges, key=lambda one: one.order) for ranges in found]
