"""Bodies of records by log position: recent ones, so that who keeps up reads no disk; and those that
exist in memory only."""

from __future__ import annotations

from collections import OrderedDict

from ..errors import MemoryFull
from ..log.record import Buffer

MEMORY = 1 << 62
"""Positions from here on are no log positions: their bodies are held here and nowhere else. An index
holds positions as signed numbers."""
COPIED_BYTES = 1024
"""Up to here a recent body is copied: a view of it takes as much again, and holds all it was received with."""
ENTRY_BYTES = 250
"""What a body takes besides its bytes."""
READ_PART = 6
"""A body takes up to three times what its record takes in the log: two reads of this part are kept at a time."""


class Bodies:
    """Of one vhost. A body is a whole batch, or a group."""

    def __init__(self, recent_bytes_max: int, held_bytes_max: int) -> None:
        """
        Args:
            recent_bytes_max: of those that are in the log as well.
            held_bytes_max: of those that are not: then `is_full`.
        """
        self.recent_bytes_max, self.held_bytes_max = recent_bytes_max, held_bytes_max
        self._recent: OrderedDict[int, Buffer] = OrderedDict()
        self.recent_bytes = 0
        self._ahead: set[int] = set()
        """Of those, which were read with another one, and nobody has asked for."""
        self._asked = self._vain_bytes = 0
        self._held: dict[int, tuple[bytes, int]] = {}
        self._next = MEMORY
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        """No more is to be held."""
        return self.held_bytes >= self.held_bytes_max

    def full(self) -> MemoryFull:
        """What is told of that."""
        return MemoryFull(self.held_bytes, self.held_bytes_max)

    @property
    def read_bytes_max(self) -> int:
        """To be read of the log at once. More would push out what comes first before anybody has seen it."""
        return self.recent_bytes_max // READ_PART

    def keep(self, position: int, body: Buffer, *, ahead: bool = False) -> None:
        """A record on its way to the log, or just read from it: probably wanted soon.

        Args:
            ahead: it was read because another one was wanted.
        """
        recent = self._recent
        if position in recent:
            return
        if ahead:
            self._ahead.add(position)
        recent[position] = body if len(body) > COPIED_BYTES else bytes(body)
        self.recent_bytes += len(body) + ENTRY_BYTES
        while self.recent_bytes > self.recent_bytes_max and len(recent) > 1:
            former, gone = recent.popitem(last=False)
            self.recent_bytes -= len(gone) + ENTRY_BYTES
            if former in self._ahead:
                self._ahead.remove(former)
                self._vain_bytes += len(gone)

    def ahead_told(self) -> tuple[int, int]:
        """Of what was read ahead, since this was last called: how many were asked for, and how many bytes
        were pushed out before anybody did."""
        told = self._asked, self._vain_bytes
        self._asked = self._vain_bytes = 0
        return told

    def hold(self, body: Buffer, references: int) -> int:
        """A body that is nowhere else, for so many lanes; its position. Copied: a view would hold all that it
        was received with, and be counted as what it shows."""
        position = self._next
        self._next += 1
        self._held[position] = (bytes(body), references)
        self.held_bytes += len(body) + ENTRY_BYTES
        return position

    def release(self, position: int) -> None:
        """One lane does not need this held body any more."""
        body, references = self._held.pop(position)
        if references > 1:
            self._held[position] = (body, references - 1)
        else:
            self.held_bytes -= len(body) + ENTRY_BYTES

    def get(self, position: int) -> Buffer | None:
        """None: it has to be read from the log, or was in memory only and is gone."""
        if position >= MEMORY:
            held = self._held.get(position)
            return None if held is None else held[0]
        if position in self._ahead:
            self._ahead.remove(position)
            self._asked += 1
        return self._recent.get(position)
