"""What is needed of a record that is to be carried forward: by which lanes, and which of its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from mesh.errors import RemoteProtocolError

from ..errors import DurableError
from ..log.bodies import ORIGIN, batch_bytes, decode_moved
from ..log.record import ALIGNMENT, TARGET_BYTES, Kind, Record, Target
from ..log.segments import Tally
from ..queues.lane import Lane
from ..queues.runs import Run
from ..vhost.bodies import MEMORY
from ..vhost.cutting import LOST_BYTES, WORTH, Range, without
from ..vhost.store import record_bytes
from ..vhost.vhost import Vhost
from .hosted import Hosted

MOVED_BYTES = ORIGIN.size + ALIGNMENT
"""What a record takes more once it was moved, at most; if it was before, it is only aligned anew."""


PIECE_BYTES = 2 * LOST_BYTES
"""What each piece that is left takes besides, about: its own front, and what stands for the ones before it."""
LOOKED_AT_ONCE, LOOKED_MAX = 256, 100_000
"""Records of which a part is settled: before others have their turn, in two milliseconds; and in one look."""


class Needed(NamedTuple):
    """A record and the lanes that need it."""

    record: Record
    targets: list[Target]
    cut: bytes | None
    """What is left of its batch or group, if little is."""

    @property
    def size_bytes(self) -> int:
        """What it takes where it is carried to, or some bytes more."""
        header = self.record.header
        size = header.total_bytes - TARGET_BYTES * (header.target_count - len(self.targets))
        if self.cut is not None:
            size -= len(batch_bytes(self.record)) - len(self.cut)
        return size + (ALIGNMENT if header.kind == Kind.MOVED else MOVED_BYTES)


def needed_of(vhost: Vhost, record: Record) -> Needed | None:
    """None: no lane needs anything of it."""
    lanes = wanting(vhost, record)
    if not lanes:
        return None
    targets = [target for target in record.targets if target.queue in lanes]
    cut: bytes | None = None
    if settled := _settled(lanes, targets):
        with suppress(RemoteProtocolError, DurableError):  # It makes no sense, and stays as it is.
            kind = decode_moved(record).kind if record.kind == Kind.MOVED else record.kind
            cut = without(batch_bytes(record), settled, captured=kind == Kind.CAPTURE)
    return Needed(record, targets, cut)


def wanting(vhost: Vhost, record: Record) -> dict[int, Lane]:
    """Lanes in which a message of this record is not settled, and stands in this record."""
    found: dict[int, Lane] = {}
    for lane_id, first in record.targets:
        lane = vhost.lane(lane_id)
        run = None if lane is None else lane.index.find(first)
        if lane is None or run is None or run.position != record.position:
            continue
        if not lane.settled.all(run.first, run.first + run.count):
            found[lane_id] = lane
    return found


async def to_cut(hosted: Hosted) -> Tally:
    """About how much could be cut out of records that are needed."""
    tally = hosted.log.tally()
    looked = 0
    for lane in list(hosted.vhost.registry.lanes.values()):
        for run, ranges in _partly_settled(lane):
            if run.position >= MEMORY or looked == LOOKED_MAX:
                break
            left = sum(end - start for start, end in ranges)
            whole_bytes = record_bytes(run.count, run.size_bytes)
            left_bytes = whole_bytes * left // run.count + PIECE_BYTES * len(ranges)
            if left_bytes <= WORTH * whole_bytes:
                tally.count(run.position, 0, whole_bytes - left_bytes)
            looked += 1
            if looked % LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
    return tally


def _partly_settled(lane: Lane) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
    """Runs of which something is settled and something is not, with that; lanes may change meanwhile."""
    settled, index = lane.settled, lane.index
    at = settled.low
    while not lane.retired and (span := next(settled.unsettled(at, index.end), None)):
        start, end = span
        run = index.find(start)
        if run is None:  # Dropped meanwhile.
            at = end
            continue
        last = run.first + run.count
        ranges = [*settled.unsettled(run.first, last)]
        if ranges != [(run.first, last)]:
            yield run, ranges
        at = last
        if end > last and (ending := index.find(end - 1)) is not None:
            at = max(last, ending.first)  # Of those between nothing is settled.


def _settled(lanes: Mapping[int, Lane], targets: Sequence[Target]) -> list[Range]:
    """Those of its messages that none of these lanes needs."""
    needed: list[Range] = []
    count = 0
    for lane_id, first in targets:
        lane = lanes[lane_id]
        run = lane.index.find(first)
        assert run is not None, "this lane wants the record"
        count = run.count
        unsettled = lane.settled.unsettled(first, first + count)
        needed += [(start - first, end - first) for start, end in unsettled]
    settled: list[Range] = []
    at = 0
    for start, end in sorted(needed):
        if start > at:
            settled.append((at, start))
        at = max(at, end)
    return [*settled, (at, count)] if at < count else settled
