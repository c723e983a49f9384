"""What is needed of a record that compaction may carry forward: by which lanes, and which of its messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from mesh.errors import RemoteProtocolError

from ..errors import DurableError
from ..log.bodies import ORIGIN, batch_bytes, decode_moved
from ..log.compaction import Chosen
from ..log.record import ALIGNMENT, HEADER_BYTES, TARGET_BYTES, Kind, Record, Target
from ..queues.lane import Lane
from ..queues.ranges import Span
from ..queues.runs import Run
from ..vhost.bodies import HELD_POSITION_MIN
from ..vhost.cutting import CUT_RATIO_MAX, LOST_BYTES, cut_settled
from ..vhost.store import record_bytes
from ..vhost.vhost import Vhost
from .running_vhost import RunningVhost

MOVED_BYTES = ORIGIN.size + ALIGNMENT
"""Maximum number of bytes by which moving makes a record larger; one that was moved before is only aligned anew."""
PIECE_BYTES = 2 * LOST_BYTES
"""Approximate bytes that each piece that is left takes besides its messages: its own front, and the `lost`
batch for the messages before it."""
ROUND_S = 10.0
"""Minimum time between the beginnings of two rounds, in seconds, if the first one found nothing."""
RUNS_AT_ONCE, RUNS_PER_S_MAX = 256, 5000
"""Runs looked at before other tasks run, which is two milliseconds, and in one second."""


class NeededRecord(NamedTuple):
    """A record, and the lanes that need it."""

    record: Record
    targets: list[Target]
    cut: bytes | None
    """What is left of its batch or group after cutting; None if it is moved uncut."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the moved record, or slightly more, before it is encrypted."""
        header = self.record.header
        # Not its total, which includes what encryption added, if it was encrypted.
        size = HEADER_BYTES + TARGET_BYTES * len(self.targets) + header.body_bytes
        if self.cut is not None:
            size -= len(batch_bytes(self.record)) - len(self.cut)
        return size + (ALIGNMENT if header.kind == Kind.MOVED else MOVED_BYTES)


def needed_of(vhost: Vhost, record: Record) -> NeededRecord | None:
    """Return what is needed of a record. None: no lane needs any of it."""
    lanes = lanes_needing(vhost, record)
    if not lanes:
        return None
    targets = [target for target in record.targets if target.queue in lanes]
    cut: bytes | None = None
    if settled := _settled(lanes, targets):
        with suppress(RemoteProtocolError, DurableError):  # An invalid body is moved as it is.
            kind = decode_moved(record).kind if record.kind == Kind.MOVED else record.kind
            cut = cut_settled(batch_bytes(record), settled, captured=kind == Kind.CAPTURE)
    return NeededRecord(record, targets, cut)


def lanes_needing(vhost: Vhost, record: Record) -> dict[int, Lane]:
    """Return the lanes that have unsettled messages in this record, at this log position."""
    found, lanes = dict[int, Lane](), vhost.registry.lanes
    for lane_id, first in record.targets:
        if (lane := lanes.get(lane_id)) is None or (run := lane.index.find(first)) is None:
            continue
        stands_here = run.position == record.position
        if stands_here and not lane.settled.covers(run.first, run.first + run.count):
            found[lane_id] = lane
    return found


class CutEstimate:
    """Goes through all lanes, a little at a time, and estimates how much could be cut out of records that are
    still needed."""

    def __init__(self, running: RunningVhost) -> None:
        self._running = running
        self._begin()

    def _begin(self) -> None:
        self.tally = self._running.log.tally()
        """The estimate so far."""
        self._began_s, self._found_none = trio.current_time(), True
        self._lanes = deque(self._running.vhost.registry.lanes.values())
        self._sequence = 0

    @property
    def is_over(self) -> bool:
        return not self._lanes

    async def choose(self) -> Chosen | None:
        """Go on, and return a segment that is mostly settled by this estimate; None if there is none yet."""
        if self.is_over:
            if self._found_none and trio.current_time() < self._began_s + ROUND_S:
                return None
            self._begin()
        await self.advance()
        chosen = self._running.log.to_compact(self.tally)
        self._found_none &= chosen is None
        return chosen

    async def advance(self) -> None:
        """Look at up to RUNS_PER_S_MAX more runs."""
        looked = 0
        while self._lanes and looked < RUNS_PER_S_MAX:
            at = self._count_next(self._lanes[0], self._sequence)
            self._sequence = 0 if at is None else at
            if at is None:
                self._lanes.popleft()
            looked += 1
            if looked % RUNS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _count_next(self, lane: Lane, at: int) -> int | None:
        """Count the first run at or after `at` that has unsettled messages. Return where to go on, or None at
        the end of the lane."""
        settled, index = lane.settled, lane.index
        if lane.retired or (span := next(settled.unsettled(at, index.end), None)) is None:
            return None
        if (run := index.find(span[0])) is None or run.position >= HELD_POSITION_MIN:
            return None
        last = run.first + run.count
        if run.count > 1:
            self._count(run, [*settled.unsettled(run.first, last)])
        last_run = index.find(span[1] - 1) if span[1] > last else None
        if last_run is None:
            return last
        return max(last, last_run.first)  # All runs between are without settled messages.

    def _count(self, run: Run, left: Sequence[tuple[int, int]]) -> None:
        whole_bytes = record_bytes(run.count, run.size_bytes)
        messages = sum(end - start for start, end in left)
        left_bytes = whole_bytes * messages // run.count + PIECE_BYTES * len(left)
        if left_bytes <= CUT_RATIO_MAX * whole_bytes:
            self.tally.count(run.position, 0, whole_bytes - left_bytes)


def _settled(lanes: Mapping[int, Lane], targets: Sequence[Target]) -> list[Span]:
    """Return the messages of the record, counted from 0, that none of these lanes needs."""
    needed: list[Span] = []
    count = 0
    for lane_id, first in targets:
        lane = lanes[lane_id]
        run = lane.index.find(first)
        assert run is not None, "this lane wants the record"
        count = run.count
        unsettled = lane.settled.unsettled(first, first + count)
        needed += [(start - first, end - first) for start, end in unsettled]
    settled: list[Span] = []
    at = 0
    for start, end in sorted(needed):
        if start > at:
            settled.append((at, start))
        at = max(at, end)
    return [*settled, (at, count)] if at < count else settled
