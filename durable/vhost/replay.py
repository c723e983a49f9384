"""From records back to a vhost: after a restart, a vhost knows exactly what the log says.

Records come in the order of the log, each once or more often, and some are missing: damaged, or freed
because nothing needed them. Each kind is applied such that this does not matter: a lane is made when a
record names it, even if its declaration comes later; a moved record replaces its original; a snapshot says
what still holds of everything before it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import COUNT_MAX, Batch

from ..errors import DurableError, InvalidDefinition, RecordDamaged
from ..log.bodies import (
    MESSAGES,
    What,
    decode_acks,
    decode_definitions,
    decode_gap,
    decode_moved,
)
from ..log.record import FIRST_POSITION, PUBLISH_KIND, TARGET, TARGET_BYTES, Kind, Record
from ..log.report import LogGap, RecoveryReport
from ..log.series import Series
from ..protocol.properties import decode_properties
from ..queues.block import Block
from ..queues.expiries import expiry_us
from ..queues.runs import Records
from .changes import Change
from .columns import read_acks, read_messages
from .cutting import cut_ranges
from .gaps import StreamGap
from .groups import Front, is_group, read_front
from .lane_recovery import LaneRecovery, settle_recorded
from .publishers import Publishers
from .registry import Registry
from .snapshot import Snapshots
from .store import Store, refer_all
from .stretches import Stretches

logger = logging.getLogger("durable")


class Replay:
    """Rebuilds one vhost at recovery. Call it with each record, then call `finish`."""

    def __init__(self, registry: Registry, publishers: Publishers) -> None:
        self.registry, self.publishers = registry, publishers
        self._assigned: dict[int, int] = {}
        """By lane, the log position up to which all sequences that had been assigned are known."""
        self._snapshots = Snapshots(registry, publishers, self._assigned)
        self._recoveries: dict[int, LaneRecovery] = {}
        self._start = self._snapshot = self._reach = 0
        self._last_position = self._contiguous_start = -1
        self.ignored_acks: set[int] = set()
        """Log positions of settlements that do not count, because the copies that they rely on are missing."""
        self.damaged: list[RecordDamaged] = []
        """Records with the right checksum and invalid contents: not written by a broker."""
        self.unknown_kinds = 0
        self._lost_counts: Counter[str] = Counter()
        self._stretches = Stretches(publishers)

    def __call__(self, found: Record | Series) -> None:
        if isinstance(found, Series):
            self._apply_series(found)
        else:
            self._apply_record(found)

    def _note_break(self, position: int) -> None:
        """The record before this log position was not read."""
        # Nothing is missing before the first record read: it was freed, or read earlier.
        self._contiguous_start = -1 if self._last_position < 0 else position
        self._stretches.finish()

    def _apply_series(self, series: Series) -> None:
        published, acks = series.messages, series.acks
        messages = None if published is None else read_messages(published)
        settled = {} if acks is None else read_acks(acks)
        if settled is None or (published is not None and messages is None):
            for record in series.records():
                self._apply_record(record)
            return
        if series.position != self._last_position + 1:
            self._note_break(series.position)
        self._last_position = series.position + series.count - 1
        self._stretches.finish()
        arrivals = [] if messages is None else list(messages.arrivals())
        begin = {lane_id: some.firsts[0] for lane_id, some in reversed(arrivals)}
        # First settle what is before the messages of this series. Those settlements may be all that is left
        # of earlier messages, and a lane takes no message behind a hole that is not settled.
        for lane_id, ranges in settled.items():
            first = begin.get(lane_id)
            if first is not None:
                ranges = [(start, min(end, first)) for start, end in ranges if start < first]
            settle_recorded(self.registry.lane(lane_id), ranges)
        for one in () if messages is None else messages.published():
            self.publishers.note_recovered(*one)
        for lane_id, some in arrivals:
            (self._recoveries.get(lane_id) or self._add_recovery(lane_id)).add_all(some)
            self._assigned[lane_id] = self._last_position
        for lane_id, first in begin.items():
            ranges = settled.get(lane_id, [])
            after = [(max(start, first), end) for start, end in ranges if end > first]
            settle_recorded(self.registry.lane(lane_id), after)

    def _apply_record(self, record: Record) -> None:
        position = record[0].position
        if position != self._last_position + 1:
            self._note_break(position)
        self._last_position = position
        try:
            self._apply(record)
        except RecordDamaged as error:
            self.damaged.append(error)
        except (RemoteProtocolError, DurableError, LookupError, TypeError, ValueError) as error:
            self._note_invalid(position, error)

    def resume_from(
        self, start: int, snapshot: int, returns_positions: Mapping[int, int], reach: int
    ) -> None:
        """Records before `start` have been applied already, and some later ones, too.

        Args:
            snapshot: log position of the snapshot that has to be found, or the loaded checkpoints cannot
                be trusted. 0: only what holds in any case was loaded.
            returns_positions: by lane, the log position up to which returns have been counted.
            reach: the log reached at least this far when the checkpoints were written. If it does not any
                more, other records will get these positions.
        """
        self._start, self._snapshot, self._reach = start, snapshot, reach
        self._snapshots.returns_positions, self._snapshots.durable_position = (
            returns_positions,
            snapshot,
        )

    @property
    def covered_end(self) -> int:
        """The effects of all records before this log position are in a snapshot that was read."""
        return self._snapshots.covered_end

    def missing(self, report: RecoveryReport) -> list[LogGap]:
        """After everything has been read, return the gaps that cannot have been freed, because messages that
        `resume_from` was given still need records in them."""
        if self._snapshot not in self._snapshots.applied:
            return []
        self._finish_lanes()
        parts = (LogGap(0, report.start), *report.absent)
        found: dict[LogGap, tuple[int, int]] = {}
        for records in self._needed_records():
            for part in parts:
                for low, high in _positions_within(records, part):
                    first, last = found.get(part, (low, high))
                    found[part] = min(first, low), max(last, high)
        return [LogGap(first, last + 1, synced=True) for first, last in found.values()]

    def is_consistent(self, report: RecoveryReport, missing: Iterable[LogGap]) -> bool:
        """Whether what `resume_from` was given holds. It does not, for one, if loaded checkpoints refer to log
        positions before the first one that is left, because a segment is gone that should be there.

        Args:
            missing: the result of `missing`.
        """
        end = report.found_end
        if self._reach > end:
            return False
        return not self._snapshot or (
            self._start <= end
            and self._snapshot in self._snapshots.applied
            and all(report.start <= gap.start for gap in missing)
            and not any(one.is_contradictory for one in self._recoveries.values())
        )

    def _needed_records(self) -> Iterator[Records | Block]:
        """Yield the records with messages that are not settled yet."""
        for lane in self.registry.lanes.values():
            yield from lane.referenced()

    def _finish_lanes(self) -> None:
        self._stretches.finish()
        for recovery in self._recoveries.values():
            recovery.finish()
        self.registry.drop_undeclared()

    def _count_lost(self) -> None:
        for lane in self.registry.lanes.values():
            count = lane.settled.count_unsettled(lane.index.end, lane.next)
            if lane.id in self._recoveries:
                count += self._recoveries[lane.id].missing
            if count:
                self._lost_counts[self.registry.owners[lane.id].name] += count

    def lost_messages(self, report: RecoveryReport) -> list[str]:
        """Return a line for each queue or stream that lacks messages, if segments are gone that may have been
        freed. Other missing records are gaps, which have been reported already."""
        freed = report.absent or report.start > FIRST_POSITION
        return [
            f"{count} messages of {name} are neither in the log nor known to be settled"
            for name, count in (self._lost_counts.items() if freed else ())
        ]

    def finish(self, store: Store, now_us: int, gaps: Iterable[LogGap] = ()) -> None:
        """After everything has been read, bring all queues and streams into order, and tell the log which
        records are still needed.

        Args:
            gaps: log positions of records that are lost.
        """
        registry = self.registry
        self._finish_lanes()
        self._count_lost()
        self._skip_lost_offsets(gaps)
        # The log has not been told that these records were needed.
        registry.journal.take_released()
        for queue in registry.queues.values():
            queue.end_recovery(now_us)
        for stream in registry.streams.values():
            stream.end_recovery()
        for lane in registry.lanes.values():
            lane.end_recovery(now_us)
            for records in lane.referenced():
                refer_all(store, records)
        for queue in registry.queues.values():
            queue.shorten(now_us)

    def _skip_lost_offsets(self, gaps: Iterable[LogGap]) -> None:
        """Skip the offsets that lost records may have had: somebody may have read them already, and must not
        see other messages under the same offsets."""
        lost = list(gaps)
        for stream in self.registry.streams.values():
            lane = stream.lane
            known = self._assigned.get(lane.id, self._start - 1)
            records = sum(gap.end - gap.start for gap in lost if gap.start > known)
            lane.settle(lane.next, lane.next + records * COUNT_MAX, recorded=True)

    def _apply(self, record: Record) -> None:
        kind = record[0].kind
        if kind != PUBLISH_KIND and self._stretches.current:
            self._stretches.finish()
        if kind in MESSAGES:
            self._apply_messages(record)
        elif kind == Kind.ACKS:
            self._apply_acks(record)
        elif kind == Kind.DEFINITIONS:
            # Definitions before the snapshot may build on some from before the first record that we read.
            # They can be skipped, because the snapshot says everything.
            if record.position >= self._snapshot:
                torn = record.position - record.header.unsynced < self._contiguous_start
                for change in decode_definitions(record):
                    self._apply_change(change, record.position, torn=torn)
        elif kind == Kind.GAP:
            for lane_id, offset in record.targets:
                self.registry.gaps.note(StreamGap(lane_id, offset, decode_gap(record)))
                lane = self.registry.lane(lane_id)
                lane.next = max(lane.next, offset)
                self._assigned[lane_id] = record.position
        else:
            self.unknown_kinds += 1

    def _apply_change(self, change: Change, position: int, *, torn: bool) -> None:
        try:
            self._snapshots.apply(change, position, torn=torn)
        except (InvalidDefinition, LookupError, TypeError, ValueError, AttributeError) as error:
            self._note_invalid(position, error)
        except DurableError as error:  # It refers to something whose record has been freed since.
            logger.info("%r no longer applies: %s", change, error)

    def _note_invalid(self, position: int, error: Exception) -> None:
        logger.warning("the record at log position %d is invalid: %s", position, error)
        self.damaged.append(RecordDamaged("contents", position))

    def _apply_messages(self, record: Record) -> None:
        # Fields are unpacked here: a property call for each would take as long as all the rest of this
        # method.
        header, contents = record
        kind, time_us, position = header.kind, header.time_us, header.position
        body_at = TARGET_BYTES * header.target_count
        body = contents[body_at : body_at + header.body_bytes]
        assigned_at = position
        if kind == Kind.MOVED:
            assigned_at, _, body, kind = decode_moved(record)
        front: Front | None = None
        if is_group(body):
            front = read_front(body)
            _, count, size_bytes, epoch, first, ttl_us, publisher, *_ = front
        else:
            batch = Batch(body)
            count, first, size_bytes = batch.count, batch.base_sequence, batch.bodies_bytes
            epoch, publisher, ttl_us = batch.epoch, batch.publisher, None
            # The headers of a captured batch come from the mesh and are not properties of ours.
            if batch.shared_headers and kind != Kind.CAPTURE:
                ttl_us = decode_properties(batch.shared_headers).ttl_us
        if header.kind == PUBLISH_KIND:
            if front is not None and front.spread:
                self._stretches.take(body, front)
            else:
                if self._stretches.current:
                    self._stretches.finish()
                self.publishers.note_recovered(publisher, epoch, first, first + count)
        expires_us = 0 if ttl_us is None else expiry_us(time_us, ttl_us)
        cut = cut_ranges(body) if header.cut else ()
        for lane_id, at in TARGET.iter_unpack(contents[:body_at]):
            recovery = self._recoveries.get(lane_id) or self._add_recovery(lane_id)
            recovery.add_run(at, count, position, size_bytes, time_us, expires_us)
            if assigned_at == position or assigned_at > self._assigned.get(lane_id, 0):
                self._assigned[lane_id] = assigned_at
            if cut:
                settle_recorded(recovery.lane, [(at + start, at + end) for start, end in cut])

    def _add_recovery(self, lane_id: int) -> LaneRecovery:
        """Return a new entry for the lane; to be called once for each lane, at its first record."""
        recovery = LaneRecovery(self.registry.lane(lane_id))
        self._recoveries[lane_id] = recovery
        return recovery

    def _apply_acks(self, record: Record) -> None:
        for lane_id, ranges, what, copies in decode_acks(record):
            if what == What.DEAD_LETTERED and record.position - copies < self._contiguous_start:
                self.ignored_acks.add(record.position)
                continue
            lane = self.registry.lane(lane_id)
            if what in (What.SETTLED, What.DEAD_LETTERED):
                settle_recorded(lane, ranges)
            elif what == What.RETURNED and record.position > self._snapshots.returns_positions.get(
                lane_id, 0
            ):
                lane.add_returns(ranges)


def _positions_within(records: Records | Block, part: LogGap) -> Iterator[tuple[int, int]]:
    """Yield the lowest and the highest log position within the gap, for one part of the records after the
    other."""
    if isinstance(records, Records):
        positions = records.positions
        rising = positions if positions.step > 0 else positions[::-1]
        low, high = bisect_left(rising, part.start), bisect_left(rising, part.end)
        if low < high:
            yield rising[low], rising[high - 1]
    elif part.start <= records.position_min and records.position_max < part.end:
        yield records.position_min, records.position_max
    elif records.position_min < part.end and part.start <= records.position_max:
        for smaller in records.parts():
            yield from _positions_within(smaller, part)
