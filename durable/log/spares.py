"""Files that become segments where no other one can be made: small ones for acks, and a whole one, the carrier.

What each is for, and when: placing.py.
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
"""Small ones: one is written while a snapshot makes the other one free."""
CARRIER, NEW = 0, -1
"""Numbers: in the name of the carrier, and of what has no name yet."""


class Spare(NamedTuple):
    number: int
    """In its name."""
    size_bytes: int
    least_bytes: int | None = None
    """Of one that is to be made: so large it has to be in any case. None: as large as that."""

    @property
    def is_carrier(self) -> bool:
        return self.number == CARRIER


def room(segment_bytes: int) -> int:
    """For records, in an empty segment."""
    return segment_bytes - SEGMENT_HEADER_BYTES - SEAL_BYTES


def was_small(config: LogConfig, segment_bytes: int) -> bool:
    """Whether a segment of this size was a small spare. What is larger was none, though segments may be larger now."""
    around = SEGMENT_HEADER_BYTES + config.reserve_bytes + SEAL_BYTES + ALIGNMENT
    return segment_bytes <= around + config.kept_for_snapshot_bytes_max


class Spares:
    """Those of one log."""

    def __init__(self, config: LogConfig, found: Iterable[Spare]) -> None:
        self._config = config
        self._small: list[Spare] = []
        self.carrier: Spare | None = None
        self.had_small = False
        """Those that are segments now come back."""
        self._given: dict[int, Spare] = {}
        self.add(*found)

    @property
    def small(self) -> Sequence[Spare]:
        """For acks."""
        return self._small

    def add(self, *spares: Spare) -> None:
        """They have been made, or are some again."""
        for spare in spares:
            if spare.is_carrier:
                self.carrier = spare
            else:
                self._small.append(spare)
                self.had_small = True

    def set_aside(self, spare: Spare) -> None:
        """Nobody may have it, until it is added again."""
        if spare.is_carrier:
            self.carrier = None
        else:
            self._small.remove(spare)

    def give(self, spare: Spare, number: int) -> None:
        """It is to be segment `number`."""
        self.set_aside(spare)
        self._given[number] = spare

    def given(self, number: int) -> Spare | None:
        """What was given to be this segment: to be asked once, by whoever begins to write it."""
        return self._given.pop(number, None)

    def for_bytes(self, size_bytes: int) -> Spare | None:
        """The largest small one, if it takes so much."""
        largest = max(self._small, key=attrgetter("size_bytes"), default=None)
        return largest if largest is not None and room(largest.size_bytes) >= size_bytes else None

    def wanted(self, kept_bytes: int) -> list[Spare]:
        """New small ones, and those that have to grow to this size: else a snapshot leaves too little of them to acks.

        Args:
            kept_bytes: for the next snapshot.
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
