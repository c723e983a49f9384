"""Spread groups at a start: notes the sequences of their publishers, for a whole stretch at once if possible.

    record 0 of 3 ──> record 1 of 3 ──> record 2 of 3 ──> one range, if nothing is missing
          │                 │
          └─────────────────┴── something else comes ──> the sequences of each, in order

The order matters: a publisher that is told of later sequences first notes a hole for each range that it has
not been told of yet, and it remembers only a limited number of holes.
"""

from __future__ import annotations

from ..log.record import Buffer
from .groups import Front, merged, sequences_in
from .publishers import Publishers


class Stretches:
    """The stretches of one replay: `take` each spread group, and call `finish` when another record comes."""

    def __init__(self, publishers: Publishers) -> None:
        self._publishers = publishers
        self.current: list[tuple[Buffer, Front]] = []
        """Records of the current stretch that have been read, from its first one on. Callers check this
        before they call `finish`: nearly all records are in no stretch, and need no call."""

    def take(self, body: Buffer, front: Front) -> None:
        """Take a spread group."""
        if self.current and (front.number, _key(front)) != (
            len(self.current),
            _key(self.current[0][1]),
        ):
            self.finish()
        self.current.append((body, front))
        stretch, count = front.stretch, len(self.current)
        if stretch is None or front.number != count - 1 or count == stretch.records:
            self.finish()

    def finish(self) -> None:
        """The next record does not continue the current stretch: note the sequences of what was read of it."""
        if not self.current:
            return
        records, self.current = self.current, []
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
            self._publishers.note_recovered(front.publisher, front.epoch, first, end)


def _key(front: Front) -> object:
    return front.stretch, front.publisher, front.epoch
