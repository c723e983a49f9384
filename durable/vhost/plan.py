"""What one call is going to store where, before anything is done: a plan is dropped without a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from mesh.protocol.batch import Batch

from ..errors import DurableError
from ..log.record import Draft, Kind, Target
from ..queues.lane import Lane
from .member import Member
from .routes import cut


class Arrival(NamedTuple):
    """Messages of one record in one lane, from sequence `first` on."""

    member: Member
    lane: Lane
    first: int


class Item(NamedTuple):
    """Consecutive messages of one batch and what becomes of them."""

    batch: Batch
    logged: tuple[Arrival, ...] = ()
    held: tuple[Arrival, ...] = ()
    """In members that keep nothing on the disk."""
    ttl_us: int | None = None
    error: DurableError | None = None

    @property
    def stored(self) -> bool:
        return bool(self.logged or self.held)


class Plan:
    """In order; `drafts` are the records of those items that go to the log.

    Args:
        stops: after one refusal all that follows is refused.
        refusal: there has been one.
    """

    def __init__(
        self, now_us: int, kind: Kind = Kind.PUBLISH, *, stops: bool = False,
        refusal: DurableError | None = None,
    ) -> None:  # fmt: skip
        self.items: list[Item] = []
        self.drafts: list[Draft] = []
        self.refusal = refusal
        """What goes for everything from now on."""
        self._now_us, self._kind, self._stops = now_us, kind, stops
        self._following: dict[Lane, int] = {}
        """The sequence of the next message planned."""
        self._planned: dict[Member, tuple[int, int]] = {}
        """Messages and bytes so far, which a member does not know of yet."""

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
        refusing = self._refusing(members, batch.count, batch.bodies_bytes)
        if refusing is None:
            self._store(batch, members, priority, ttl_us)
            return
        # As much of it as all of them take, and the rest is refused.
        fitting = bisect_left(
            range(1, batch.count + 1), True,
            key=lambda count: self._refusing(members, count, batch.bodies_bytes * count // batch.count)
            is not None,
        )  # fmt: skip
        middle = batch.base_sequence + fitting
        if fitting:
            self._store(cut(batch, batch.base_sequence, middle), members, priority, ttl_us)
        self.refuse(cut(batch, middle, batch.next_sequence), refusing.full())

    def _refusing(self, members: Sequence[Member], count: int, size_bytes: int) -> Member | None:
        """The first of them that does not accept so much more."""
        for member in members:
            planned_count, planned_bytes = self._planned.get(member, (0, 0))
            if not member.accepts(planned_count + count, planned_bytes + size_bytes):
                return member
        return None

    def _store(
        self, batch: Batch, members: Sequence[Member], priority: int, ttl_us: int | None
    ) -> None:
        logged: list[Arrival] = []
        held: list[Arrival] = []
        for member in members:
            lane = member.lane_for(priority)
            first = self._following.get(lane, lane.next)
            self._following[lane] = first + batch.count
            count, size = self._planned.get(member, (0, 0))
            self._planned[member] = (count + batch.count, size + batch.bodies_bytes)
            (logged if member.logged else held).append(Arrival(member, lane, first))
        if logged:
            targets = [Target(lane.id, first) for _, lane, first in logged]
            self.drafts.append(Draft(self._kind, batch.view(), targets, self._now_us))
        self.items.append(Item(batch, tuple(logged), tuple(held), ttl_us))
