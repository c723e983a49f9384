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
        self.begun: list[tuple[Buffer, Front]] = []
        """Records of one stretch, from its first one on, that have come; asked before `end` for each record,
        of which nearly all are none of this."""

    def take(self, body: Buffer, front: Front) -> None:
        """A spread group."""
        if self.begun and (front.number, _of(front)) != (len(self.begun), _of(self.begun[0][1])):
            self.end()
        self.begun.append((body, front))
        stretch, count = front.stretch, len(self.begun)
        if stretch is None or front.number != count - 1 or count == stretch.records:
            self.end()

    def end(self) -> None:
        """What comes next is of no stretch that has begun."""
        if not self.begun:
            return
        records, self.begun = self.begun, []
        front = records[0][1]
        stretch = front.stretch
        if (
            stretch is not None
            and len(records) == stretch.records
            and stretch.messages == sum(one.messages for _, one in records)
        ):
            ranges = [(stretch.first, stretch.first + stretch.messages)]
        else:
            ranges = merged(sorted(one for group in records for one in sequences_in(*group)))
        for first, end in ranges:
            self._publishers.recovered(front.publisher, front.epoch, first, end)


def _of(front: Front) -> object:
    return front.stretch, front.publisher, front.epoch
