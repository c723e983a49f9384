"""Spread groups at a start: which sequences their publishers have, all those of a stretch together.

    record 0 of 3 ──> record 1 of 3 ──> record 2 of 3 ──> one range, if nothing is missing
          │                 │
          └─────────────────┴── something else comes ──> the sequences of each, in order

In order, for a publisher that is told of later sequences first remembers a hole for each that it was not
told of, and only so many.
"""

from __future__ import annotations

from ..log.record import Buffer
from .groups import Front, merged, sequences_in
from .publishers import Publishers


class Stretches:
    """Of one replay: told of each spread group, and when another record comes."""

    def __init__(self, publishers: Publishers) -> None:
        self._publishers = publishers
        self._some: list[tuple[Buffer, Front]] = []
        """Records of one stretch, from its first one on, that have come."""

    def __bool__(self) -> bool:
        """Whether a stretch has begun that may go on."""
        return bool(self._some)

    def take(self, body: Buffer, front: Front) -> None:
        """A spread group."""
        some, stretch = self._some, front.stretch
        if some and (front.number, _of(front)) != (len(some), _of(some[0][1])):
            self.end()
        some.append((body, front))
        if stretch is None or front.number != len(some) - 1 or len(some) == stretch.records:
            self.end()

    def end(self) -> None:
        """What comes next is of no stretch that has begun."""
        if not self._some:
            return
        some, self._some = self._some, []
        front = some[0][1]
        stretch = front.stretch
        if (
            stretch is not None
            and len(some) == stretch.records
            and stretch.messages == sum(one.messages for _, one in some)
        ):
            ranges = [(stretch.first, stretch.first + stretch.messages)]
        else:
            ranges = merged(sorted(one for group in some for one in sequences_in(*group)))
        for first, end in ranges:
            self._publishers.recovered(front.publisher, front.epoch, first, end)


def _of(front: Front) -> object:
    return front.stretch, front.publisher, front.epoch
