"""Files kept to become segments when no other can be made: small ones for acks, and a whole one, the carrier.

What each is for, and when it is used: placing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from .bodies import SEAL_BYTES
from .config import LogConfig
from .header import SEGMENT_HEADER_BYTES
from .record import ALIGNMENT

SPARES = 2
"""Number of small spares: one is written while a snapshot makes the other one free."""
CARRIER, NEW = 0, -1
"""Spare numbers: that in the name of the carrier, and that of a spare which has no name yet."""


class Spare(NamedTuple):
    number: int
    """The number in its name."""
    size_bytes: int
    least_bytes: int | None = None
    """For a spare that is to be made: the least size that is acceptable. None: only `size_bytes` is."""

    @property
    def is_carrier(self) -> bool:
        return self.number == CARRIER


def room(segment_bytes: int) -> int:
    """Return how many bytes an empty segment of this size has for records."""
    return segment_bytes - SEGMENT_HEADER_BYTES - SEAL_BYTES


def was_small_spare(config: LogConfig, segment_bytes: int) -> bool:
    """Return whether a segment of this size was a small spare. A larger one was not, even if segments have grown."""
    around = SEGMENT_HEADER_BYTES + config.reserve_bytes + SEAL_BYTES + ALIGNMENT
    return segment_bytes <= around + config.kept_for_snapshot_bytes_max


class Spares:
    """The spares of one log."""

    def __init__(self, config: LogConfig, found: Iterable[Spare]) -> None:
        self._config = config
        self._small: list[Spare] = []
        self.carrier: Spare | None = None
        self.had_small = False
        """Whether there was ever a small spare: those that are segments now become spares again."""
        self._assigned: dict[int, Spare] = {}
        self.add(*found)

    @property
    def small(self) -> Sequence[Spare]:
        """The small spares, for acks."""
        return self._small

    def add(self, *spares: Spare) -> None:
        """Add spares that were made, or segments that are spares again."""
        for spare in spares:
            if spare.is_carrier:
                self.carrier = spare
            else:
                self._small.append(spare)
                self.had_small = True

    def withdraw(self, spare: Spare) -> None:
        """Take it out, so that it cannot be used until it is added again."""
        if spare.is_carrier:
            self.carrier = None
        else:
            self._small.remove(spare)

    def assign(self, spare: Spare, number: int) -> None:
        """Take it out to become segment `number`."""
        self.withdraw(spare)
        self._assigned[number] = spare

    def take_assigned(self, number: int) -> Spare | None:
        """Return the spare that is to become this segment, if any. The first write to the segment asks, once."""
        return self._assigned.pop(number, None)

    def for_bytes(self, size_bytes: int) -> Spare | None:
        """Return the largest small spare, if `size_bytes` fit in it."""
        largest = max(self._small, key=attrgetter("size_bytes"), default=None)
        return largest if largest is not None and room(largest.size_bytes) >= size_bytes else None

    def wanted(self, kept_bytes: int) -> list[Spare]:
        """Return small spares to be made, and existing ones that have to grow: in a smaller one a snapshot would leave
        too little room to acks.

        Args:
            kept_bytes: kept for the next snapshot.
        """
        reserve = self._config.reserve_bytes
        least, size = (
            SEGMENT_HEADER_BYTES + kept_bytes + acks + SEAL_BYTES
            for acks in (reserve // 2, reserve)
        )
        size += -size % ALIGNMENT
        if not (kept_bytes and reserve and size < self._config.segment_bytes):
            return []
        little = [one for one in self._small if one.size_bytes < least]
        new = [Spare(NEW, size, least + -least % ALIGNMENT)] * (SPARES - len(self._small))
        return [*(one._replace(size_bytes=size) for one in little), *new]
