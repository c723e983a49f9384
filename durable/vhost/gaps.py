"""Gaps of streams: messages that a stream should have captured, but did not, and where they are missing.

A gap lies right before an offset, so it takes none. Of each stream the newest gaps are known one by one; of those
before, only how many messages they lack together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple

from ..log.bodies import Missed

GAPS_MAX = 1000
"""Gaps of one stream."""
NO_PUBLISHER = bytes(16)


class StreamGap(NamedTuple):
    """Messages are missing in a stream right before `offset`."""

    lane: int
    offset: int
    missed: Missed
    total: int = 0
    """Messages that are missing before `offset` altogether."""


class Gaps:
    """The gaps of all streams of one vhost, by the streams' lanes."""

    def __init__(self) -> None:
        self._by_lane: dict[int, deque[StreamGap]] = {}
        """Ordered by offset; none is empty."""

    def __bool__(self) -> bool:
        return bool(self._by_lane)

    def __iter__(self) -> Iterator[StreamGap]:
        for gaps in self._by_lane.values():
            yield from gaps

    def note(self, gap: StreamGap) -> None:
        """Add a gap; they come in the order of offsets. Above GAPS_MAX the two oldest are merged: the number
        of missing messages stays right, their publishers are forgotten."""
        gaps = self._by_lane.setdefault(gap.lane, deque())
        before = gaps[-1].total if gaps else 0
        gaps.append(gap._replace(total=before + gap.missed.messages))
        if len(gaps) > GAPS_MAX:
            gaps.popleft()
            gaps[0] = gaps[0]._replace(missed=_merged_missed(gaps[0].total))

    def of(self, lane: int) -> Sequence[StreamGap]:
        """Return the gaps of a stream, ordered by offset."""
        return tuple(self._by_lane.get(lane, ()))

    def between(self, lane: int, start: int, end: int, reported: int = 0) -> list[StreamGap]:
        """Return the gaps of a stream before the offsets [start, end), for a reader to which `reported`
        missing messages were reported; of a merged gap, only what was not reported to it."""
        gaps = self._by_lane.get(lane)
        if not gaps or gaps[-1].offset < start:
            return []
        low = bisect_left(gaps, start, key=_offset)
        found: list[StreamGap] = []
        for gap in islice(gaps, low, bisect_left(gaps, end, lo=low, key=_offset)):
            left = gap.total - reported
            if left >= gap.missed.messages:
                found.append(gap)
            elif left > 0:
                found.append(gap._replace(missed=_merged_missed(left)))
        return found

    def missing_before(self, lane: int, offset: int) -> int:
        """Return how many messages of this stream are missing before `offset`; fewer if the gap before it has
        been merged with a later one."""
        gaps = self._by_lane.get(lane, ())
        at = bisect_left(gaps, offset, key=_offset)
        return gaps[at - 1].total if at else 0

    def missing(self, lane: int) -> int:
        """Return how many messages of this stream are missing altogether."""
        gaps = self._by_lane.get(lane)
        return gaps[-1].total if gaps else 0

    def forget(self, lane: int) -> None:
        """Forget the gaps of a stream that is deleted."""
        self._by_lane.pop(lane, None)

    def keep_only(self, lanes: Set[int]) -> None:
        """Forget the gaps of all other lanes."""
        for lane in self._by_lane.keys() - lanes:
            del self._by_lane[lane]

    def clear(self) -> None:
        """Forget all gaps."""
        self._by_lane.clear()


def _merged_missed(messages: int) -> Missed:
    return Missed(NO_PUBLISHER, 0, "", 0, messages)


def _offset(gap: StreamGap) -> int:
    return gap.offset
