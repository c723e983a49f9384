"""A snapshot: everything a vhost knows but its messages, as changes that stand in the log.

    ["snapshot", next lane, start]  declarations and cursors ...  ["publishers", [...]]  ["lanes", [...]]
    ["returns", [[lane, up to which sequence, [[start, end, how often], ...]], ...]]  ["gaps", [...]]
    ["snapshot end"]

It is appended as one, in as many records as it takes, and where a segment takes it once more right behind,
each with its begin and its end: whichever is damaged, the other one says it. Once it is durable, records
before log position `start` that no message needs may go, for it knows what they did: what is declared in
none of its changes does not exist, whatever they said. In older snapshots, and in copies by `salvage`,
there is no `start`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..errors import RecordDamaged
from ..log.bodies import Missed, decode_definitions, encode_definitions, join_definitions
from ..log.record import Buffer, Draft, Kind, Record
from ..queues.lane import Lane
from ..queues.settled import Settled
from ..turns import some_at_once
from . import changes
from .changes import Change
from .publishers import Publishers
from .recovering import settle_known
from .registry import TRANSIENT, Registry, StreamGap

RECORD_BYTES = 1 << 20
"""Of changes in one record, about."""
SETTLED_BYTES_MAX = 64 * 1024
"""Of one lane's out-of-order settlements; longer ones stand in its checkpoint only."""
RETURNS_MAX = 2000
"""Ranges of one lane whose messages came back alike; further ones stand in its checkpoint only."""
AT_ONCE = 1000
"""Publishers in one change."""
PAIR = b"\x92"
"""How msgpack begins a list of two."""


class Snapshots:
    """Applies changes at recovery, snapshots included."""

    def __init__(self, registry: Registry, publishers: Publishers, given: dict[int, int]) -> None:
        """
        Args:
            given: is told, by lane, the log position up to which all is known that it had been given.
        """
        self._registry, self._publishers, self._given = registry, publishers, given
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
        elif word == changes.PUBLISHERS:
            # Torn, it may count as stored what is missing, and would be confirmed when it comes again.
            if not torn or self._begun == self.durable:
                for entry in change[1]:
                    self._publishers.restore(entry)
        elif word == changes.LANES:
            for lane_id, following, settled in change[1]:
                lane = self._registry.lane(lane_id)
                lane.next = max(lane.next, following)
                self._given[lane_id] = position
                found = Settled.decode(settled)
                settle_known(lane, found.ranges(0, found.end))
        elif word == changes.RETURNS:
            for lane_id, end, ranges in change[1]:
                if self.returns.get(lane_id, 0) < position:  # Else more is known already.
                    self._registry.lane(lane_id).recall_returns(ranges, end)
        elif word == changes.GAPS:
            self._registry.gaps.clear()
            for lane_id, offset, missed in change[1]:
                self._registry.note_gap(StreamGap(lane_id, offset, Missed(*missed)))
        else:
            if self._declared is not None:
                self._declared.append(change)
            elif word == changes.STREAM and change[1] not in self._registry.owners:
                self._given[change[1]] = position  # Nothing yet.
            self._registry.apply(change)


class Part(NamedTuple):
    """Changes, encoded one behind the other."""

    changes: int
    packed: bytes


class Snapshot:
    """A new one. It is of the moment in which `drafts` is called, and is encoded before, some at a time:
    then only what has changed is encoded once more.

    Until that moment nothing may be declared or deleted. Messages come and go, and cursors move.
    """

    def __init__(
        self, registry: Registry, publishers: Publishers, start: int, *, alone: bool = False
    ) -> None:
        """
        Args:
            start: what records before this log position did has been applied.
            alone: no checkpoint says what it leaves out, so it leaves out nothing.
        """
        self._registry, self._publishers = registry, publishers
        self._start, self.alone = start, alone
        self._declared: list[Part] = []
        self._lanes: list[_Lanes] = []

    def steps(self) -> Generator[None, None, None]:
        """All of it, once; yields wherever others may have their turn."""
        begin: Change = [changes.SNAPSHOT, self._registry.next_lane, self._start]
        for declared in some_at_once(chain([begin], self._registry.declared())):
            self._declared += _parts(map(encode_definitions, declared))
            yield
        logged = [lane for lane in self._registry.lanes.values() if lane.id < TRANSIENT]
        for lanes in some_at_once(logged):
            self._lanes.append(_Lanes(lanes, alone=self.alone))
            yield
        for some in self._lanes:  # That took long. This does not, and leaves less to the last turn.
            some.renew()
            yield

    def drafts(self, now_us: int, *, full: bool = False) -> list[Draft]:
        """Records to be appended together.

        Args:
            full: the disk is, so it is one record. What a kill leaves of that is cut off; of several,
                those that had been written would take the room of the next one.
        """
        drafts: list[Draft] = []
        gathered: list[Part] = []
        size = 0

        def draft() -> Draft:
            count = sum(part.changes for part in gathered)
            body = join_definitions([part.packed for part in gathered], count)
            return Draft(Kind.DEFINITIONS, body, (), now_us, snapshot=True)

        for part in chain(self._declared, _parts(self._others())):
            gathered.append(part)
            size += len(part.packed)
            if size >= RECORD_BYTES and not full:
                drafts.append(draft())
                gathered, size = [], 0
        drafts.append(draft())
        return drafts

    def _others(self) -> Iterator[bytes]:
        """All but what is declared, encoded as it is now."""
        yield from map(encode_definitions, self._registry.cursors())
        entries = self._publishers.entries()
        for at in range(0, len(entries), AT_ONCE):
            yield encode_definitions([changes.PUBLISHERS, entries[at : at + AT_ONCE]])
        for some in self._lanes:
            some.renew()
            yield some.lanes
        yield from filter(None, (some.returns for some in self._lanes))
        noted = self._registry.all_gaps()
        gaps = [[one.lane, one.offset, list(one.missed)] for one in noted]
        yield encode_definitions([changes.GAPS, gaps])
        yield encode_definitions([changes.SNAPSHOT_END])


class _Lanes:
    """Some lanes: one change that says how they are, and one how often their messages came back."""

    def __init__(self, lanes: Sequence[Lane], *, alone: bool) -> None:
        self._all, self._alone = lanes, alone
        self._looks = [-1] * len(lanes)
        self._lanes, self._returns = [b""] * len(lanes), [b""] * len(lanes)
        self.lanes = self.returns = b""
        self.renew()

    def renew(self) -> None:
        """Encode those that have changed since."""
        looks = [lane.next + lane.changes for lane in self._all]  # Neither ever falls.
        if looks == self._looks:
            return
        for at, (lane, look, before) in enumerate(zip(self._all, looks, self._looks, strict=True)):
            if look != before:
                self._lanes[at] = encode_definitions(self._settled(lane))
                ranges, end = lane.returns(None if self._alone else RETURNS_MAX)
                self._returns[at] = encode_definitions([lane.id, end, ranges]) if ranges else b""
        self._looks = looks
        self.lanes = _list_change(changes.LANES, self._lanes)
        returns = list(filter(None, self._returns))
        self.returns = _list_change(changes.RETURNS, returns) if returns else b""

    def _settled(self, lane: Lane) -> list[Any]:
        settled = lane.settled.encode()
        if len(settled) > SETTLED_BYTES_MAX and not self._alone:
            low = Settled()
            low.add(0, lane.settled.low)
            settled = low.encode()
        return [lane.id, lane.next, settled]


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


def _parts(packed: Iterable[bytes]) -> Iterator[Part]:
    """Of about a record at most."""
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
    """[word, entries], of entries that have been encoded one by one."""
    return PAIR + encode_definitions(word) + join_definitions(packed)
