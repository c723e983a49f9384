"""A snapshot: everything a vhost knows but its messages, as changes in the log.

    ["snapshot", next lane, start]  declarations and cursors ...  ["publishers", [...]]  ["lanes", [...]]
    ["returns", [[lane, up to which sequence, [[start, end, how often], ...]], ...]]  ["gaps", [...]]
    ["snapshot end"]

It is appended at once, in as many records as it needs, and, if a segment has room for that, a second time
right behind. Each copy has its own begin and end, so if one is damaged the other one counts. Once it is
durable, records before log position `start` that no message needs may be freed, because the snapshot has
their effects: whatever none of its changes declares does not exist, whatever those records said. Older
snapshots, and those copied by `salvage`, have no `start`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from ..errors import DurableError, RecordDamaged
from ..log.bodies import Missed, decode_definitions, encode_definitions, join_definitions
from ..log.record import Buffer, Draft, Kind, Record
from ..queues.lane import Lane
from ..queues.settled import Settled
from ..turns import some_at_once
from . import changes
from .changes import Change, identity, opposite
from .gaps import StreamGap
from .lane_recovery import settle_recorded
from .publishers import Publishers
from .registry import TRANSIENT_LANE_MIN, Registry

RECORD_BYTES = 1 << 20
"""Approximate bytes of changes in one record."""
SETTLED_BYTES_MAX = 64 * 1024
"""Bytes of one lane's out-of-order settlements; larger ones are in the lane's checkpoint only."""
RETURNS_MAX = 2000
"""Ranges of one lane whose messages were returned equally often; further ones are in its checkpoint only."""
PUBLISHERS_AT_ONCE = 1000
"""Publishers in one change."""
PAIR = b"\x92"
"""The byte with which msgpack begins a list of two."""


class Snapshots:
    """Applies changes at recovery, those of snapshots included."""

    def __init__(
        self, registry: Registry, publishers: Publishers, assigned: dict[int, int]
    ) -> None:
        """
        Args:
            assigned: updated here: by lane, the log position up to which all assigned sequences are known.
        """
        self._registry, self._publishers, self._assigned = registry, publishers, assigned
        self._declared: list[Change] | None = None
        self._begin_position = self._start = self._last_position = 0
        self.durable_position = 0
        """Log position at which a snapshot begins that is known to be durable, with everything before it."""
        self.returns_positions: Mapping[int, int] = {}
        """By lane, the log position up to which returns have been counted already."""
        self.covered_end = 0
        """The effects of all records before this log position are in a snapshot that was read completely."""
        self.applied: set[int] = set()
        """Log positions at which snapshots begin that have been applied completely."""

    def apply(self, change: Change, position: int, *, torn: bool = False) -> None:
        """
        Args:
            torn: a record before this one is missing that was not yet known to be durable when this one was written.
        """
        word = change[0]
        if self._declared is not None and position > self._last_position + 1:
            # A record of the snapshot is missing, so what the snapshot declares is not known completely.
            self._declared = None
        self._last_position = position
        if word == changes.SNAPSHOT:
            self._declared, self._begin_position = [], position
            self._start = change[2] if len(change) > 2 else 0
            self._registry.next_lane = max(self._registry.next_lane, change[1])
        elif word == changes.SNAPSHOT_END:
            if self._declared is not None:
                _keep_only(self._registry, self._declared)
                self.applied.add(self._begin_position)
                if not torn:
                    self.covered_end = max(self.covered_end, self._start)
            self._declared = None
        elif word == changes.PUBLISHERS:
            # A torn snapshot may count sequences as stored whose records are missing: these would be
            # confirmed as duplicates when they are sent again, although they are lost.
            if not torn or self._begin_position == self.durable_position:
                for entry in change[1]:
                    self._publishers.restore(entry)
        elif word == changes.LANES:
            for lane_id, next_sequence, settled in change[1]:
                lane = self._registry.lane(lane_id)
                lane.next = max(lane.next, next_sequence)
                self._assigned[lane_id] = position
                found = Settled.decode(settled)
                settle_recorded(lane, found.ranges(0, found.end))
        elif word == changes.RETURNS:
            for lane_id, end, ranges in change[1]:
                # Otherwise a checkpoint knows more.
                if self.returns_positions.get(lane_id, 0) < position:
                    self._registry.lane(lane_id).load_returns(ranges, end)
        elif word == changes.GAPS:
            self._registry.gaps.clear()
            for lane_id, offset, missed in change[1]:
                self._registry.gaps.note(StreamGap(lane_id, offset, Missed(*missed)))
        else:
            if self._declared is not None:
                self._declared.append(change)
            elif word == changes.STREAM and change[1] not in self._registry.owners:
                self._assigned[change[1]] = position  # It is new, so no offset had been assigned.
            self._registry.apply(change)


def _keep_only(registry: Registry, declared: list[Change]) -> None:
    """Delete everything that none of these changes declares."""
    identities = set(map(identity, declared))
    for change in [*registry.declared(), *registry.cursors()]:
        if identity(change) not in identities:
            registry.apply(opposite(change))
    for change in declared:  # Deleting bindings may have deleted their auto-delete exchange.
        if change[0] in (changes.EXCHANGE, changes.BIND):
            # Already reported when first applied.
            with suppress(DurableError, LookupError, TypeError, ValueError):
                registry.apply(change)


class Part(NamedTuple):
    """Encoded changes, one behind the other."""

    changes: int
    packed: bytes


class Snapshot:
    """A new snapshot. It describes the moment in which `drafts` is called. To keep that call short, most of
    it is encoded in `steps` before; `drafts` encodes again only what has changed since.

    From `steps` to `drafts` nothing may be declared or deleted. Messages may come and go, and cursors may
    move.
    """

    def __init__(
        self, registry: Registry, publishers: Publishers, start: int, *, complete: bool = False
    ) -> None:
        """
        Args:
            start: the effects of records before this log position are known, and part of the snapshot.
            complete: it leaves out nothing, because there is no checkpoint that has the rest.
        """
        self._registry, self._publishers = registry, publishers
        self._start, self.complete = start, complete
        self._declared: list[Part] = []
        self._lanes: list[_Lanes] = []

    def steps(self) -> Generator[None, None, None]:
        """Encode everything once; yields where other tasks may run."""
        begin: Change = [changes.SNAPSHOT, self._registry.next_lane, self._start]
        for declared in some_at_once(chain([begin], self._registry.declared())):
            self._declared += _parts(map(encode_definitions, declared))
            yield
        logged = [lane for lane in self._registry.lanes.values() if lane.id < TRANSIENT_LANE_MIN]
        for lanes in some_at_once(logged):
            self._lanes.append(_Lanes(lanes, complete=self.complete))
            yield
        # The first pass took long, and lanes changed meanwhile. This one is short, and leaves less to
        # `drafts`, which runs in one turn.
        for some in self._lanes:
            some.renew()
            yield

    def drafts(self, now_us: int, *, full: bool = False) -> list[Draft]:
        """Return the records, to be appended together.

        Args:
            full: the disk is full, so make one record. If a kill tears that, it is cut off and its space
                is free again; of several records, those that were written whole would take the room of the
                next snapshot.
        """
        drafts: list[Draft] = []
        gathered: list[Part] = []
        size = 0

        def draft() -> Draft:
            count = sum(part.changes for part in gathered)
            body = join_definitions([part.packed for part in gathered], count)
            return Draft(Kind.DEFINITIONS, body, (), now_us, snapshot=True)

        for part in chain(self._declared, _parts(self._encode_rest())):
            gathered.append(part)
            size += len(part.packed)
            if size >= RECORD_BYTES and not full:
                drafts.append(draft())
                gathered, size = [], 0
        drafts.append(draft())
        return drafts

    def _encode_rest(self) -> Iterator[bytes]:
        """Yield everything but declarations, encoded as it is now."""
        yield from map(encode_definitions, self._registry.cursors())
        entries = self._publishers.entries()
        for at in range(0, len(entries), PUBLISHERS_AT_ONCE):
            yield encode_definitions([changes.PUBLISHERS, entries[at : at + PUBLISHERS_AT_ONCE]])
        for some in self._lanes:
            some.renew()
            yield some.lanes
        yield from filter(None, (some.returns for some in self._lanes))
        gaps = [[one.lane, one.offset, list(one.missed)] for one in self._registry.gaps]
        yield encode_definitions([changes.GAPS, gaps])
        yield encode_definitions([changes.SNAPSHOT_END])


class _Lanes:
    """Some lanes, encoded: one change for their settlements, and one for their returns."""

    def __init__(self, lanes: Sequence[Lane], *, complete: bool) -> None:
        self._all, self._complete = lanes, complete
        self._change_counts = [-1] * len(lanes)
        self._lanes, self._returns = [b""] * len(lanes), [b""] * len(lanes)
        self.lanes = self.returns = b""
        self.renew()

    def renew(self) -> None:
        """Encode the lanes that have changed since the last call."""
        counts = [lane.next + lane.change_count for lane in self._all]  # Neither number ever falls.
        if counts == self._change_counts:
            return
        for at, (lane, count, before) in enumerate(
            zip(self._all, counts, self._change_counts, strict=True)
        ):
            if count != before:
                self._lanes[at] = encode_definitions(self._settled_entry(lane))
                ranges, end = lane.returns(None if self._complete else RETURNS_MAX)
                self._returns[at] = encode_definitions([lane.id, end, ranges]) if ranges else b""
        self._change_counts = counts
        self.lanes = _list_change(changes.LANES, self._lanes)
        returns = list(filter(None, self._returns))
        self.returns = _list_change(changes.RETURNS, returns) if returns else b""

    def _settled_entry(self, lane: Lane) -> list[Any]:
        settled = lane.settled.encode()
        if len(settled) > SETTLED_BYTES_MAX and not self._complete:
            low = Settled()
            low.add(0, lane.settled.low)
            settled = low.encode()
        return [lane.id, lane.next, settled]


def strip_start(record: Record) -> Buffer:
    """Return the body of a record of definitions for a copy of the log, whose log positions differ: a
    snapshot without its `start`."""
    try:
        found = decode_definitions(record)
    except RecordDamaged:
        return record.body
    match found:
        case [[changes.SNAPSHOT, next_lane, _], *others]:
            return encode_definitions([[changes.SNAPSHOT, next_lane], *others])
    return record.body


def _parts(packed: Iterable[bytes]) -> Iterator[Part]:
    """Join encoded changes to parts of about one record each."""
    some: list[bytes] = []
    size = 0
    for one in packed:
        some.append(one)
        size += len(one)
        if size >= RECORD_BYTES:
            yield Part(len(some), b"".join(some))
            some, size = [], 0
    if some:
        yield Part(len(some), b"".join(some))


def _list_change(word: str, packed: Sequence[bytes]) -> bytes:
    """Encode [word, entries], with entries that are encoded already."""
    return PAIR + encode_definitions(word) + join_definitions(packed)
