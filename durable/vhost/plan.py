"""What one call is going to store where, before anything is done: a plan is dropped without a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from mesh.protocol.batch import Batch

from ..errors import DurableError
from ..log.record import Draft, Kind, Target
from ..queues.lane import Lane
from .groups import BATCHES_MAX, are_alike, encode_group
from .member import Member
from .routes import cut


class Arrival(NamedTuple):
    """Messages of one record in one lane, from sequence `first` on."""

    member: Member
    lane: Lane
    first: int


class Item:
    """Consecutive messages of one publisher and what becomes of them.

    Args:
        bodies_bytes: of all payloads; 0 where nothing is stored.
        held: in members that keep nothing on the disk.
    """

    __slots__ = (
        "batches", "bodies_bytes", "count", "error", "held", "logged", "received_bytes", "ttl_us",
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
        """One that goes where the others do."""
        self.batches.append(batch)
        self.count += batch.count
        self.bodies_bytes += bodies_bytes
        self.received_bytes += batch.size_bytes

    def draft(self, kind: int, now_us: int) -> Draft:
        """The record of what is logged of it."""
        targets = [Target(lane.id, first) for _, lane, first in self.logged]
        if len(self.batches) == 1:
            return Draft(kind, self.batches[0].view(), targets, now_us)
        return Draft(kind, encode_group(self.batches, self.ttl_us), targets, now_us, grouped=True)


class Plan:
    """Items in the order of their messages.

    Args:
        group_bytes: so many bytes of batches that follow each other to the same lanes share a record, at
            most. 0: none do.
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
        self._open: tuple[Item, Sequence[Member], int] | None = None
        """The last item that is stored, if more may share its record; where it goes: members and priority."""
        self._following: dict[Lane, int] = {}
        """The sequence of the next message planned."""
        self._planned: dict[Member, tuple[int, int]] = {}
        """Messages and bytes so far, which a member does not know of yet."""

    def drafts(self) -> list[Draft]:
        """The records of those items that go to the log."""
        return [one.draft(self._kind, self._now_us) for one in self.items if one.logged]

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
        open_item = self._joined_by(batch, bodies_bytes, members, priority, ttl_us)
        logged: list[Arrival] = []
        held: list[Arrival] = []
        for member in members:
            lane = member.lane_for(priority)
            first = self._following.get(lane, lane.next)
            self._following[lane] = first + batch.count
            count, size = self._planned.get(member, (0, 0))
            self._planned[member] = (count + batch.count, size + bodies_bytes)
            if open_item is None:
                (logged if member.logged else held).append(Arrival(member, lane, first))
        if open_item is not None:
            open_item.add(batch, bodies_bytes)
            return
        item = Item(batch, bodies_bytes, logged, held, ttl_us=ttl_us)
        self.items.append(item)
        self._open = (item, members, priority) if logged and not held else None

    def _joined_by(
        self, batch: Batch, bodies_bytes: int, members: Sequence[Member], priority: int,
        ttl_us: int | None,
    ) -> Item | None:  # fmt: skip
        """The item whose record it may share."""
        if self._open is None:
            return None
        item, its_members, its_priority = self._open
        last = item.batches[-1]
        joins = (
            members == its_members
            and (priority, ttl_us) == (its_priority, item.ttl_us)
            and item.received_bytes + batch.size_bytes <= self._group_bytes
            and len(item.batches) < BATCHES_MAX
            and are_alike(item.count, item.bodies_bytes, batch, bodies_bytes)
            and (batch.base_sequence, batch.publisher, batch.epoch)
            == (last.next_sequence, last.publisher, last.epoch)
        )
        return item if joins else None
