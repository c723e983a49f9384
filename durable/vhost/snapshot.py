"""A snapshot: everything a vhost knows but its messages, as changes that stand in the log.

    ["snapshot", next lane, start]  declarations ...  ["publishers", [...]]  ["lanes", [...]]
    ["returns", [[lane, up to which sequence, [[start, end, how often], ...]], ...]]  ["gaps", [...]]
    ["snapshot end"]

It is appended as one, in as many records as it takes, and where a segment takes it once more right behind,
each with its begin and its end: whichever is damaged, the other one says it. Once it is durable, records
before log position `start` that no message needs may go, for it knows what they did: what is declared in
none of its changes does not exist, whatever they said. In older snapshots, and in copies by `salvage`,
there is no `start`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import RecordDamaged
from ..log.bodies import Missed, decode_definitions, encode_definitions, join_definitions
from ..log.record import Buffer, Draft, Kind, Record
from ..queues.settled import Settled
from . import changes
from .changes import Change
from .publishers import Publishers
from .recovering import settle_as
from .registry import TRANSIENT, Gap, Registry

PUBLISHERS, GAPS = "publishers", "gaps"
RETURNS = "returns"
RECORD_BYTES = 1 << 20
"""Of changes in one record, about."""
SETTLED_BYTES_MAX = 64 * 1024
"""Of one lane's out-of-order settlements; longer ones stand in its checkpoint only."""
RETURNS_MAX = 2000
"""Ranges of one lane whose messages came back alike; further ones stand in its checkpoint only."""
AT_ONCE = 1000


class Snapshots:
    """Applies changes at recovery, snapshots included."""

    def __init__(self, registry: Registry, publishers: Publishers) -> None:
        self._registry, self._publishers = registry, publishers
        self._declared: list[Change] | None = None
        self._begun = self._start = self._last = 0
        self.durable = 0
        """Log position at which a snapshot begins that is known to be durable, with all before it."""
        self.returns: Mapping[int, int] = {}
        """By lane, the log position up to which returns have been counted already."""
        self.known = 0
        """Log position before which a snapshot that is whole knows what records did."""
        self.whole: set[int] = set()
        """Log positions at which snapshots begin that have been applied to their end."""

    def apply(self, change: Change, position: int, *, torn: bool = False) -> None:
        """
        Args:
            torn: something is missing of what was not known to be durable when this was written.
        """
        word = change[0]
        if self._declared is not None and position > self._last + 1:
            self._declared = None  # One of its records is missing, and what that declared.
        self._last = position
        if word == changes.SNAPSHOT:
            self._declared, self._begun = [], position
            self._start = change[2] if len(change) > 2 else 0
            self._registry.next_lane = max(self._registry.next_lane, change[1])
        elif word == changes.SNAPSHOT_END:
            if self._declared is not None:
                self._registry.keep_only(self._declared)
                self.whole.add(self._begun)
                if not torn:
                    self.known = max(self.known, self._start)
            self._declared = None
        elif word == PUBLISHERS and torn and self._begun != self.durable:
            pass  # It counts as stored what is missing, and would be confirmed when it comes again.
        elif word == PUBLISHERS:
            for entry in change[1]:
                self._publishers.restore(entry)
        elif word == changes.LANES:
            for lane_id, following, settled in change[1]:
                lane = self._registry.lane(lane_id)
                lane.next = max(lane.next, following)
                settle_as(lane, Settled.decode(settled))
        elif word == RETURNS:
            for lane_id, end, ranges in change[1]:
                if self.returns.get(lane_id, 0) < position:  # Else more is known already.
                    self._registry.lane(lane_id).recall_returns(ranges, end)
        elif word == GAPS:
            self._registry.gaps.clear()
            for lane_id, offset, missed in change[1]:
                self._registry.note_gap(Gap(lane_id, offset, Missed(*missed)))
        else:
            if self._declared is not None:
                self._declared.append(change)
            self._registry.apply(change)


def snapshot(
    registry: Registry, publishers: Publishers, now_us: int, start: int, *, alone: bool = False,
    full: bool = False,
) -> list[Draft]:  # fmt: skip
    """Records to be appended together. What those before log position `start` did has been applied.

    Args:
        alone: no checkpoint says what it leaves out, so it leaves out nothing.
        full: the disk is, so it is one record. What a kill leaves of that is cut off; of several, those
            that had been written would take the room of the next one.
    """
    drafts: list[Draft] = []
    gathered: list[bytes] = []
    size = 0

    def draft() -> Draft:
        return Draft(Kind.DEFINITIONS, join_definitions(gathered), (), now_us, snapshot=True)

    for change in _changes(registry, publishers, start, alone=alone):
        packed = encode_definitions(change)
        gathered.append(packed)
        size += len(packed)
        if size >= RECORD_BYTES and not full:
            drafts.append(draft())
            gathered, size = [], 0
    drafts.append(draft())
    return drafts


def placeless(record: Record) -> Buffer:
    """The body of a record of definitions for a copy of the log, whose log positions are others."""
    try:
        found = decode_definitions(record)
    except RecordDamaged:
        return record.body
    match found:
        case [[changes.SNAPSHOT, next_lane, _], *others]:
            return encode_definitions([[changes.SNAPSHOT, next_lane], *others])
    return record.body


def _changes(
    registry: Registry, publishers: Publishers, start: int, *, alone: bool
) -> Iterator[Change]:
    yield [changes.SNAPSHOT, registry.next_lane, start]
    yield from registry.declared()
    yield from _in_parts(PUBLISHERS, publishers.entries())
    yield from _in_parts(changes.LANES, list(_lanes(registry, alone=alone)))
    yield from _in_parts(RETURNS, list(_returns(registry, alone=alone)))
    yield [GAPS, [[lane, offset, list(missed)] for lane, offset, missed in registry.all_gaps()]]
    yield [changes.SNAPSHOT_END]


def _lanes(registry: Registry, *, alone: bool) -> Iterator[list[Any]]:
    for lane in registry.lanes.values():
        if lane.id < TRANSIENT:
            settled = lane.settled.encode()
            if len(settled) > SETTLED_BYTES_MAX and not alone:
                low = Settled()
                low.skip_to(lane.settled.low)
                settled = low.encode()
            yield [lane.id, lane.next, settled]


def _returns(registry: Registry, *, alone: bool) -> Iterator[list[Any]]:
    for lane in registry.lanes.values():
        ranges, end = lane.returns(None if alone else RETURNS_MAX)
        if ranges and lane.id < TRANSIENT:
            yield [lane.id, end, ranges]


def _in_parts(word: str, entries: list[Any]) -> Iterator[Change]:
    for at in range(0, len(entries), AT_ONCE):
        yield [word, entries[at : at + AT_ONCE]]
