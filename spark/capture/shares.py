"""How a streaming batch is shared out among tasks: the same way whenever it is planned.

An ordinary plan cuts at blocks and by sizes. Both depend on when the log was looked at, so after a restart the
sink, which numbers rows by task, would take one row for another. What is kept with a batch's end does not
depend on that:

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
    """How one batch is shared out."""

    cuts: tuple[int, ...] = ()
    """Log positions at which tasks begin, except the first one."""
    groups: int = 0
    """Number of groups of lanes with `ordering=queue`; otherwise 0."""


def shares_of(works: Sequence[Work], start: int, *, ordered: bool) -> Shares:
    """Return the shares of an ordinary plan for log positions from `start` on."""
    if ordered:
        return Shares(groups=max(1, len(works)))
    begins = {one.ranges[0].first_origin for one in works[1:]}
    return Shares(tuple(sorted(one for one in begins if one > start)))


def share_out(selected: Selected, shares: Shares) -> list[Work]:
    """Return the plan for these shares. A task that has nothing to read any more stays, so that the numbers of
    later tasks do not change."""
    found = _split_ranges(selected, shares.cuts)
    if shares.groups:
        (all_ranges,) = found
        return [
            work_of_lanes(
                all_ranges, _group(selected.lanes, number, shares.groups), first=number == 0
            )
            for number in range(shares.groups)
        ]
    return [work_of(ranges, selected.lanes) for ranges in found]


def _group(table: LaneTable, number: int, groups: int) -> LaneTable:
    return {lane: offsets for lane, offsets in table.items() if lane % groups == number}


def _split_ranges(selected: Selected, cuts: Sequence[int]) -> list[list[ByteRange]]:
    edges = [selected.start, *cuts, selected.end]
    found = [
        segment_ranges(selected._replace(start=low, end=high), NO_LIMIT)
        for low, high in pairwise(edges)
    ]
    for one in carried_ranges(selected, NO_LIMIT, cuts):
        found[bisect_right(cuts, one.first_origin)].append(one)
    return [sorted(ranges, key=lambda one: one.first_origin) for ranges in found]
