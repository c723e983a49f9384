"""Files that become segments where no other one can be made: small ones for acks, and a whole one, the carrier.

What each is for, and when: placing.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from .bodies import SEAL_BYTES
from .config import LogConfig
from .header import SEGMENT_HEADER_BYTES
from .record import ALIGNMENT
from .segments import Segment

SEGMENT_PER_SNAPSHOT = 4
"""What is kept for a snapshot leaves most of a segment to publishes, and room for a copy of it."""
SPARES = 2
"""Small ones: one is written while a snapshot makes the other one free."""
CARRIER, NEW = 0, -1
"""Numbers: in the name of the carrier, and of what has no name yet."""
CARRIES_MIN = 3
"""Segments of which one is worth more as a carrier than to be written."""


class Spare(NamedTuple):
    number: int
    """In its name."""
    size_bytes: int

    @property
    def is_carrier(self) -> bool:
        return self.number == CARRIER


def spare_bytes_max(config: LogConfig) -> int:
    """What is larger was no small one, though it may be smaller than segments are now."""
    snapshot_bytes_max = config.segment_bytes // SEGMENT_PER_SNAPSHOT
    return SEGMENT_HEADER_BYTES + snapshot_bytes_max + config.reserve_bytes + SEAL_BYTES + ALIGNMENT


def room(segment_bytes: int) -> int:
    """For records, in an empty segment."""
    return segment_bytes - SEGMENT_HEADER_BYTES - SEAL_BYTES


class Spares:
    """Those of one log."""

    def __init__(self, config: LogConfig, found: Iterable[Spare]) -> None:
        self._config, self._small_bytes_max = config, spare_bytes_max(config)
        self.small: list[Spare] = []
        """For acks."""
        self.carrier: Spare | None = None
        self.taken: dict[int, Spare] = {}
        """By segment, which have been given away since whoever writes them last looked."""
        self._had_small = False
        for spare in found:
            self.add(spare)

    def add(self, spare: Spare) -> None:
        """It has been made, or is one again."""
        if spare.is_carrier:
            self.carrier = spare
        else:
            self.small.append(spare)
            self._had_small = True

    def take(self, spare: Spare, number: int) -> None:
        """It is segment `number` from now on."""
        self.taken[number] = spare
        if spare is self.carrier:
            self.carrier = None
        else:
            self.small.remove(spare)

    def was_small(self, capacity_bytes: int) -> bool:
        """Whether a segment of this size was one of these."""
        return capacity_bytes <= self._small_bytes_max

    def largest(self) -> Spare | None:
        return max(self.small, key=attrgetter("size_bytes"), default=None)

    def fit(self, size_bytes: int) -> bool:
        """Whether there is one that takes so much."""
        largest = self.largest()
        return largest is not None and room(largest.size_bytes) >= size_bytes

    def carries(self, segments: Iterable[Segment], writing: int, capacity_bytes: int) -> bool:
        """Whether there is to be a carrier. With few segments there is little to carry forward, and one more is
        worth more; without small spares acks need the next segment more. Those that are segments now come back.

        Args:
            segments: with something in them.
            writing: number of the one being written, which may not be among them yet, and of this size.
        """
        small = self.was_small(capacity_bytes)
        if self._config.compaction_share_max == 0 or not (self._had_small or small):
            return False
        whole = (
            one
            for one in segments
            if one.number != writing and not self.was_small(one.capacity_bytes)
        )
        wanted = CARRIES_MIN - (not small)
        return sum(1 for _ in islice(whole, wanted)) == wanted

    def wanted(self, kept: int, *, carries: bool) -> list[Spare]:
        """To be made, or to grow to this size: such a one leaves too little to acks beside a snapshot.

        Args:
            kept: bytes, for the next snapshot.
        """
        reserve = self._config.reserve_bytes
        size = SEGMENT_HEADER_BYTES + kept + reserve + SEAL_BYTES
        size += -size % ALIGNMENT
        wanted: list[Spare] = []
        if kept and reserve and size < self._config.segment_bytes:
            little = [one for one in self.small if room(one.size_bytes) - kept < reserve // 2]
            wanted += [one._replace(size_bytes=size) for one in little]
            wanted += [Spare(NEW, size)] * (SPARES - len(self.small))
        if self.carrier is None and carries:
            wanted.append(Spare(CARRIER, self._config.segment_bytes))
        return wanted
