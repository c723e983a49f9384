"""Which offsets of a lane went with their segments.

    segments  | 1 |     | 4 |     |     a hole shows in log positions, or only in offsets
    lane      0..28     57..86    114   28 to 56 were in a freed one: a segment's offsets of a lane are consecutive
    copies          · ··            ·   compaction carried some of them

A salvaged log has no holes in its log positions. Damage does not count as a hole: it is reported when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from durable.log.record import FIRST_POSITION

from .contents import Contents, MovedRuns
from .spans import Span, without


def freed_offsets(
    contents: Sequence[Contents], carried: Callable[[], MovedRuns], lane: int, *, low: int,
    high: int, end: int,
) -> list[Span]:  # fmt: skip
    """Return offsets of [low, high) that are neither where they were written nor in a copy.

    Args:
        carried: see StoredLog; called only if there is a hole, because it takes long.
        end: the lane's next offset.
    """
    clipped = ((max(low, first), min(high, after)) for first, after in _holes(contents, lane, end))
    holes = [one for one in clipped if one[0] < one[1]]
    if not holes:
        return []
    runs = carried()
    in_lane = runs.lane == lane
    firsts = runs.first[in_lane]
    copies = zip(firsts.tolist(), (firsts + runs.messages[in_lane]).tolist(), strict=True)
    return list(without(holes, sorted(copies)))


def _holes(contents: Sequence[Contents], lane: int, end: int) -> Iterator[Span]:
    offset, position, hole, damaged = 0, FIRST_POSITION, False, False
    for one in contents:
        hole |= one.first > position
        damaged |= one.lossy
        position = max(one.end, one.successor_first)
        span = one.lanes.get(lane)
        if span is not None:
            if hole or not damaged:
                yield offset, span.first
            offset, hole, damaged = span.end, False, one.lossy
    if hole or not damaged:
        yield offset, end
