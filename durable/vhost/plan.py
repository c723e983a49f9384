"""What one call is going to store where, before anything is done: a plan is dropped without a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from mesh.protocol.batch import Batch

from ..errors import DurableError
from ..log.record import Draft, Kind, Target
from ..queues.lane import Lane
from .groups import BATCHES_MAX, DISTANCE_END, GroupStretch, are_alike, encode_group, is_spread
from .member import Member
from .publishers import HOLES_MAX
from .routes import cut

SPREAD_MAX = HOLES_MAX // 2
"""Batches from the first one in a record to the last, those that are not in it included: what a power cut
leaves of an append has no more holes than that, and what its publisher sends again is known."""


class Arrival(NamedTuple):
    """Messages of one record in one lane, from sequence `first` on."""

    member: Member
    lane: Lane
    first: int


class Outcome(NamedTuple):
    """What becomes of a publisher's messages with sequences [`first`, `end`)."""

    first: int
    end: int
    stored: bool


class Item:
    """Messages of one publisher whose sequences rise, and what becomes of them.

    Args:
        bodies_bytes: of all payloads; 0 where nothing is stored.
        held: in members that keep nothing on the disk.
    """

    __slots__ = (
        "batches", "begun", "bodies_bytes", "count", "error", "held", "logged", "received_bytes",
        "spread", "ttl_us",
    )  # fmt: skip

    def __init__(
        self, batch: Batch, bodies_bytes: int = 0, logged: Sequence[Arrival] = (),
        held: Sequence[Arrival] = (), *, ttl_us: int | None = None,
        error: DurableError | None = None,
    ) -> None:  # fmt: skip
        self.batches = [batch]
        """More than one only where all of them go to the log and nowhere else: in one record."""
        self.count, self.bodies_bytes = batch.count, bodies_bytes
        self.received_bytes = batch.size_bytes
        self.logged, self.held, self.ttl_us, self.error = logged, held, ttl_us, error
        self.begun = 0
        """Which batch of the plan its first one is."""
        self.spread = False
        """Whether some between its messages are not in it."""

    @property
    def stored(self) -> bool:
        return bool(self.logged or self.held)

    @property
    def first(self) -> int:
        """Sequence of its first message."""
        return int(self.batches[0].base_sequence)

    @property
    def end(self) -> int:
        """The sequence after its last one."""
        return self.batches[-1].next_sequence

    def add(self, batch: Batch, bodies_bytes: int) -> None:
        """One that goes where the others do, and is behind them."""
        self.spread = self.spread or batch.base_sequence != self.end
        self.batches.append(batch)
        self.count += batch.count
        self.bodies_bytes += bodies_bytes
        self.received_bytes += batch.size_bytes

    def draft(self, kind: int, now_us: int, stretch: GroupStretch | None, number: int) -> Draft:
        """The record of what is logged of it; that of this number in a stretch, if there is one."""
        targets = [Target(lane.id, first) for _, lane, first in self.logged]
        if len(self.batches) == 1 and stretch is None:
            return Draft(kind, self.batches[0].view(), targets, now_us)
        body = encode_group(self.batches, self.ttl_us, stretch, number)
        return Draft(kind, body, targets, now_us, grouped=True, spread=is_spread(body))


class Way(NamedTuple):
    """Where an item went."""

    item: Item
    members: Sequence[Member]
    priority: int


class Plan:
    """Items in the order of their first messages.

    Args:
        group_bytes: so many bytes of batches share a record, at most, if they go to the same lanes and none
            of these got something else in between. 0: none do.
        stops: after one refusal all that follows is refused.
        refusal: there has been one.
    """

    def __init__(
        self, now_us: int, kind: Kind = Kind.PUBLISH, *, group_bytes: int = 0, stops: bool = False,
        refusal: DurableError | None = None,
    ) -> None:  # fmt: skip
        self.items: list[Item] = []
        self.refusal = refusal
        """What goes for everything from now on."""
        self._now_us, self._kind, self._stops = now_us, kind, stops
        self._group_bytes = group_bytes
        self._open: Way | None = None
        """Of what was stored last, or went on last."""
        self._last: dict[Lane, Way] = {}
        """By lane, of what was stored in it last; `_open` is noted when something goes another way, so
        where all go the same nothing is."""
        self._spread = False
        """Whether an item is."""
        self._stored = 0
        """Batches."""
        self._following: dict[Lane, int] = {}
        """The sequence of the next message planned."""
        self._planned: dict[Member, tuple[int, int]] = {}
        """Messages and bytes so far, which a member does not know of yet."""

    def drafts(self) -> list[Draft]:
        """The records of those items that go to the log."""
        logged = [one for one in self.items if one.logged]
        stretch = _stretch(logged) if self._spread else None
        return [
            one.draft(self._kind, self._now_us, stretch, number)
            for number, one in enumerate(logged)
        ]

    def outcomes(self) -> Sequence[Item | Outcome]:
        """Of all messages, each a range without a hole: the items, where none is spread, as mostly."""
        if not self._spread:
            return self.items
        found: list[Outcome] = []
        for outcome in sorted(
            Outcome(batch.base_sequence, batch.next_sequence, item.stored)
            for item in self.items
            for batch in item.batches
        ):
            first, end, stored = outcome
            if found and found[-1][1:] == (first, stored):
                first = found.pop().first
            found.append(Outcome(first, end, stored))
        return found

    def refuse(self, batch: Batch, error: DurableError) -> None:
        self.items.append(Item(batch, error=error))
        if self._stops and self.refusal is None:
            self.refusal = error

    def drop(self, batch: Batch) -> None:
        """Nobody wants it; behind a refusal that makes no difference."""
        if self.refusal is not None:
            self.refuse(batch, self.refusal)
            return
        self.items.append(Item(batch))

    def store(
        self, batch: Batch, members: Sequence[Member], priority: int, ttl_us: int | None
    ) -> None:
        """In all of these, or, where one is full and refuses, in none."""
        if self.refusal is not None:
            self.refuse(batch, self.refusal)
            return
        size = batch.bodies_bytes
        refusing = self._refusing(members, batch.count, size)
        if refusing is None:
            self._store(batch, size, members, priority, ttl_us)
            return
        # As much of it as all of them take, and the rest is refused.
        fitting = bisect_left(
            range(1, batch.count + 1), True,
            key=lambda count: self._refusing(members, count, size * count // batch.count) is not None,
        )  # fmt: skip
        middle = batch.base_sequence + fitting
        if fitting:
            front = cut(batch, batch.base_sequence, middle)
            self._store(front, front.bodies_bytes, members, priority, ttl_us)
        self.refuse(cut(batch, middle, batch.next_sequence), refusing.full())

    def _refusing(self, members: Sequence[Member], count: int, size_bytes: int) -> Member | None:
        """The first of them that does not accept so much more."""
        for member in members:
            planned_count, planned_bytes = self._planned.get(member, (0, 0))
            if not member.accepts(planned_count + count, planned_bytes + size_bytes):
                return member
        return None

    def _store(
        self, batch: Batch, bodies_bytes: int, members: Sequence[Member], priority: int,
        ttl_us: int | None,
    ) -> None:  # fmt: skip
        joined = self._joined_by(batch, bodies_bytes, members, priority, ttl_us)
        self._stored += 1
        logged: list[Arrival] = []
        held: list[Arrival] = []
        for member in members:
            lane = member.lane_for(priority)
            first = self._following.get(lane, lane.next)
            self._following[lane] = first + batch.count
            count, size = self._planned.get(member, (0, 0))
            self._planned[member] = (count + batch.count, size + bodies_bytes)
            if joined is None:
                (logged if member.logged else held).append(Arrival(member, lane, first))
        if joined is not None:
            joined.add(batch, bodies_bytes)
            self._spread = self._spread or joined.spread
            return
        item = Item(batch, bodies_bytes, logged, held, ttl_us=ttl_us)
        item.begun = self._stored
        self.items.append(item)
        self._open = Way(item, members, priority)

    def _joined_by(
        self, batch: Batch, bodies_bytes: int, members: Sequence[Member], priority: int,
        ttl_us: int | None,
    ) -> Item | None:  # fmt: skip
        """The item whose record it may share."""
        if self._open is None or not self._go(members, priority):
            return None
        item = self._open.item
        last = item.batches[-1]
        joins = (
            not item.held
            and ttl_us == item.ttl_us
            and item.received_bytes + batch.size_bytes <= self._group_bytes
            and len(item.batches) < BATCHES_MAX
            and self._stored - item.begun < SPREAD_MAX
            and are_alike(item.count, item.bodies_bytes, batch, bodies_bytes)
            and (batch.publisher, batch.epoch) == (last.publisher, last.epoch)
            and last.next_sequence <= batch.base_sequence < item.first + DISTANCE_END
        )
        return item if joins else None

    def _go(self, members: Sequence[Member], priority: int) -> bool:
        """Make what all these lanes got last the open one, if it is one item that went there and nowhere
        else; whether it is."""
        way = self._open
        assert way is not None, "something was stored"
        if (way.members, way.priority) == (members, priority):
            return True
        last = self._last
        for _, lane, _ in (*way.item.logged, *way.item.held):
            last[lane] = way
        lanes = [member.lane_for(priority) for member in members]
        found = last.get(lanes[0])
        if found is None or (found.members, found.priority) != (members, priority):
            return False
        if any(last[lane] is not found for lane in lanes):
            return False
        self._open = found
        return True


def _stretch(items: Sequence[Item]) -> GroupStretch | None:
    """What all of them are together. None: they are of several publishers, as dead letters may be, or too
    far apart."""
    batches = [batch for item in items for batch in item.batches]
    batches.sort(key=attrgetter("base_sequence"))
    first, last = batches[0], batches[-1]
    messages = last.next_sequence - first.base_sequence
    publishers = {(one.publisher, one.epoch) for one in batches}
    if len(publishers) > 1 or messages >= DISTANCE_END:
        return None
    whole = all(one.next_sequence == other.base_sequence for one, other in pairwise(batches))
    return GroupStretch(first.base_sequence, messages if whole else 0, len(items))
