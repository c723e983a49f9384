"""What one call will store, and where, before anything is done: a plan can be dropped without a trace."""

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
"""Maximum number of batches from the first one in a record to the last, including those between that are in
other records. So what a power cut leaves of an append has at most so many holes, few enough for the
publishers' table to remember, and what the publisher sends again is recognised."""


class LaneTarget(NamedTuple):
    """The messages of one record in one lane, from sequence `first` on."""

    member: Member
    lane: Lane
    first: int


class Outcome(NamedTuple):
    """Whether a publisher's messages with sequences [`first`, `end`) are stored."""

    first: int
    end: int
    stored: bool


class Item:
    """Messages of one publisher, with rising sequences, that share one outcome.

    Args:
        bodies_bytes: of all payloads; 0 where nothing is stored.
        logged: targets in members whose messages go to the log.
        held: targets in members that keep nothing on the disk.
        error: why the messages are refused.
    """

    __slots__ = (
        "batches", "bodies_bytes", "count", "error", "first_number", "held", "logged",
        "received_bytes", "spread", "ttl_us",
    )  # fmt: skip

    def __init__(
        self, batch: Batch, bodies_bytes: int = 0, logged: Sequence[LaneTarget] = (),
        held: Sequence[LaneTarget] = (), *, ttl_us: int | None = None,
        error: DurableError | None = None,
    ) -> None:  # fmt: skip
        self.batches = [batch]
        """More than one only if all go to the log, and nowhere else: they share one record."""
        self.count, self.bodies_bytes = batch.count, bodies_bytes
        self.received_bytes = batch.size_bytes
        self.logged, self.held, self.ttl_us, self.error = logged, held, ttl_us, error
        self.first_number = 0
        """The number of its first batch among those that the plan stores."""
        self.spread = False
        """Whether sequences between its messages are not in it."""

    @property
    def stored(self) -> bool:
        return bool(self.logged or self.held)

    @property
    def first(self) -> int:
        """The sequence of its first message."""
        return int(self.batches[0].base_sequence)

    @property
    def end(self) -> int:
        """The sequence after its last message."""
        return self.batches[-1].next_sequence

    def add(self, batch: Batch, bodies_bytes: int) -> None:
        """Add a batch that goes where the others go and comes behind them."""
        self.spread = self.spread or batch.base_sequence != self.end
        self.batches.append(batch)
        self.count += batch.count
        self.bodies_bytes += bodies_bytes
        self.received_bytes += batch.size_bytes

    def draft(self, kind: int, now_us: int, stretch: GroupStretch | None, number: int) -> Draft:
        """Return the record of its logged messages; it is record `number` of `stretch`, if there is one."""
        targets = [Target(lane.id, first) for _, lane, first in self.logged]
        if len(self.batches) == 1 and stretch is None:
            return Draft(kind, self.batches[0].view(), targets, now_us)
        body = encode_group(self.batches, self.ttl_us, stretch, number)
        return Draft(kind, body, targets, now_us, grouped=True, spread=is_spread(body))


class ItemRoute(NamedTuple):
    """An item, and where it goes."""

    item: Item
    members: Sequence[Member]
    priority: int


class Plan:
    """Items in the order of their first messages.

    Args:
        group_bytes: bytes of batches that may share a record, if they go to the same lanes and none of
            these lanes got anything else in between. 0: each batch has a record of its own.
        stops: after one refusal, everything that follows is refused.
        refusal: the refusal, if there has been one already.
    """

    def __init__(
        self, now_us: int, kind: Kind = Kind.PUBLISH, *, group_bytes: int = 0, stops: bool = False,
        refusal: DurableError | None = None,
    ) -> None:  # fmt: skip
        self.items: list[Item] = []
        self.refusal = refusal
        """The error with which everything is refused from now on, if any."""
        self._now_us, self._kind, self._stops = now_us, kind, stops
        self._group_bytes = group_bytes
        self._open_route: ItemRoute | None = None
        """The route of the item that was stored or extended last."""
        self._last_routes: dict[Lane, ItemRoute] = {}
        """By lane, the route of the item that was stored in it last. `_open_route` is entered only when something
        goes another route, so nothing is entered while everything goes the same one."""
        self._has_spread = False
        """Whether any item is spread."""
        self._stored_batches = 0
        """Batches stored so far."""
        self._next_sequences: dict[Lane, int] = {}
        """By lane, the sequence of the next message planned."""
        self._planned: dict[Member, tuple[int, int]] = {}
        """Messages and bytes planned for each member so far, which the member does not know of yet."""

    def drafts(self) -> list[Draft]:
        """Return the records of the items that go to the log."""
        logged = [one for one in self.items if one.logged]
        stretch = _stretch(logged) if self._has_spread else None
        return [
            one.draft(self._kind, self._now_us, stretch, number)
            for number, one in enumerate(logged)
        ]

    def outcomes(self) -> Sequence[Item | Outcome]:
        """Return the outcomes of all messages, as ranges without holes. If no item is spread, which is usual,
        the items themselves."""
        if not self._has_spread:
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
        """Note a batch that no queue wants; behind a refusal it is refused like everything else."""
        if self.refusal is not None:
            self.refuse(batch, self.refusal)
            return
        self.items.append(Item(batch))

    def store(
        self, batch: Batch, members: Sequence[Member], priority: int, ttl_us: int | None
    ) -> None:
        """Store the batch in all of these members. If one is full and refuses, store as many messages as all
        accept, and refuse the rest: no message is stored in some of them only."""
        if self.refusal is not None:
            self.refuse(batch, self.refusal)
            return
        size = batch.bodies_bytes
        refusing = self._refusing(members, batch.count, size)
        if refusing is None:
            self._store(batch, size, members, priority, ttl_us)
            return
        # The largest count that all members accept.
        fitting = bisect_left(
            range(1, batch.count + 1), True,
            key=lambda count: self._refusing(members, count, size * count // batch.count) is not None,
        )  # fmt: skip
        middle = batch.base_sequence + fitting
        if fitting:
            front = cut(batch, batch.base_sequence, middle)
            self._store(front, front.bodies_bytes, members, priority, ttl_us)
        self.refuse(cut(batch, middle, batch.next_sequence), refusing.full_error())

    def _refusing(self, members: Sequence[Member], count: int, size_bytes: int) -> Member | None:
        """Return the first member that does not accept so much more; None if all do."""
        for member in members:
            planned_count, planned_bytes = self._planned.get(member, (0, 0))
            if not member.accepts(planned_count + count, planned_bytes + size_bytes):
                return member
        return None

    def _store(
        self, batch: Batch, bodies_bytes: int, members: Sequence[Member], priority: int,
        ttl_us: int | None,
    ) -> None:  # fmt: skip
        joined = self._find_joinable(batch, bodies_bytes, members, priority, ttl_us)
        self._stored_batches += 1
        logged: list[LaneTarget] = []
        held: list[LaneTarget] = []
        for member in members:
            lane = member.lane_for(priority)
            first = self._next_sequences.get(lane, lane.next)
            self._next_sequences[lane] = first + batch.count
            count, size = self._planned.get(member, (0, 0))
            self._planned[member] = (count + batch.count, size + bodies_bytes)
            if joined is None:
                (logged if member.logged else held).append(LaneTarget(member, lane, first))
        if joined is not None:
            joined.add(batch, bodies_bytes)
            self._has_spread = self._has_spread or joined.spread
            return
        item = Item(batch, bodies_bytes, logged, held, ttl_us=ttl_us)
        item.first_number = self._stored_batches
        self.items.append(item)
        self._open_route = ItemRoute(item, members, priority)

    def _find_joinable(
        self, batch: Batch, bodies_bytes: int, members: Sequence[Member], priority: int,
        ttl_us: int | None,
    ) -> Item | None:  # fmt: skip
        """Return the item whose record the batch may share, if there is one."""
        if self._open_route is None or not self._reopen(members, priority):
            return None
        item = self._open_route.item
        last = item.batches[-1]
        joins = (
            not item.held
            and ttl_us == item.ttl_us
            and item.received_bytes + batch.size_bytes <= self._group_bytes
            and len(item.batches) < BATCHES_MAX
            and self._stored_batches - item.first_number < SPREAD_MAX
            and are_alike(item.count, item.bodies_bytes, batch, bodies_bytes)
            and (batch.publisher, batch.epoch) == (last.publisher, last.epoch)
            and last.next_sequence <= batch.base_sequence < item.first + DISTANCE_END
        )
        return item if joins else None

    def _reopen(self, members: Sequence[Member], priority: int) -> bool:
        """Return whether the last item of all these lanes is one and the same, which went to them and nowhere
        else; if so, make its route the open one."""
        route = self._open_route
        assert route is not None, "something was stored"
        if (route.members, route.priority) == (members, priority):
            return True
        last = self._last_routes
        for _, lane, _ in (*route.item.logged, *route.item.held):
            last[lane] = route
        lanes = [member.lane_for(priority) for member in members]
        found = last.get(lanes[0])
        if found is None or (found.members, found.priority) != (members, priority):
            return False
        if any(last[lane] is not found for lane in lanes):
            return False
        self._open_route = found
        return True


def _stretch(items: Sequence[Item]) -> GroupStretch | None:
    """Return the stretch that all items form together. None if they are of several publishers, as dead
    letters may be, or too far apart."""
    batches = [batch for item in items for batch in item.batches]
    batches.sort(key=attrgetter("base_sequence"))
    first, last = batches[0], batches[-1]
    messages = last.next_sequence - first.base_sequence
    publishers = {(one.publisher, one.epoch) for one in batches}
    if len(publishers) > 1 or messages >= DISTANCE_END:
        return None
    whole = all(one.next_sequence == other.base_sequence for one, other in pairwise(batches))
    return GroupStretch(first.base_sequence, messages if whole else 0, len(items))
