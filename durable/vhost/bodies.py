"""Bodies of records by log position: recent ones, so that consumers that keep up need no reads from the disk,
and those that are in memory only."""

from __future__ import annotations

from collections import OrderedDict

from ..errors import MemoryFull
from ..log.record import Buffer

HELD_POSITION_MIN = 1 << 62
"""Positions from here on are not log positions: their bodies are held here and nowhere else. Below 2^63,
because an index stores positions as signed numbers."""
COPIED_BYTES = 1024
"""Recent bodies up to this size are copied: a view takes as much memory besides, and keeps the whole buffer
alive in which the body was received."""
ENTRY_BYTES = 250
"""Memory that a body takes besides its bytes."""
READ_DIVISOR = 6
"""The part of `recent_bytes_max` that one read may take, as a divisor. A body takes up to three times the
memory of its record in the log, and two reads should fit."""


class Bodies:
    """The bodies of one vhost. A body is a whole batch, or a group."""

    def __init__(self, recent_bytes_max: int, held_bytes_max: int) -> None:
        """
        Args:
            recent_bytes_max: for bodies that are in the log as well; the oldest are dropped above it.
            held_bytes_max: for bodies that are in memory only; at this size `is_full` becomes true.
        """
        self.recent_bytes_max, self.held_bytes_max = recent_bytes_max, held_bytes_max
        self._recent: OrderedDict[int, Buffer] = OrderedDict()
        self.recent_bytes = 0
        self._read_ahead: set[int] = set()
        """Positions of recent bodies that were read ahead and have not been asked for yet."""
        self._ahead_used = self._ahead_evicted_bytes = 0
        self._held: dict[int, tuple[bytes, int]] = {}
        self._next_held = HELD_POSITION_MIN
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further body should be held."""
        return self.held_bytes >= self.held_bytes_max

    def full_error(self) -> MemoryFull:
        """Return the error for a publish that is refused because of `is_full`."""
        return MemoryFull(self.held_bytes, self.held_bytes_max)

    @property
    def read_bytes_max(self) -> int:
        """Bytes of the log to read at once. A larger read would push out its first bodies before they are
        used."""
        return self.recent_bytes_max // READ_DIVISOR

    def keep(self, position: int, body: Buffer, *, read_ahead: bool = False) -> None:
        """Keep the body of a record that is on its way to the log or was just read from it: it is probably
        wanted soon.

        Args:
            read_ahead: it was read only because a neighbour was wanted.
        """
        recent = self._recent
        if position in recent:
            return
        if read_ahead:
            self._read_ahead.add(position)
        recent[position] = body if len(body) > COPIED_BYTES else bytes(body)
        self.recent_bytes += len(body) + ENTRY_BYTES
        while self.recent_bytes > self.recent_bytes_max and len(recent) > 1:
            oldest, evicted = recent.popitem(last=False)
            self.recent_bytes -= len(evicted) + ENTRY_BYTES
            if oldest in self._read_ahead:
                self._read_ahead.remove(oldest)
                self._ahead_evicted_bytes += len(evicted)

    def take_ahead_counts(self) -> tuple[int, int]:
        """Return, of the bodies read ahead since the last call, how many were asked for, and how many bytes
        were pushed out before they were asked for."""
        counts = self._ahead_used, self._ahead_evicted_bytes
        self._ahead_used = self._ahead_evicted_bytes = 0
        return counts

    def hold(self, body: Buffer, references: int) -> int:
        """Hold a body that is stored nowhere else, for `references` lanes, and return its position.

        It is copied: a view would keep the whole received buffer alive, but be counted only as the part
        that it shows.
        """
        position = self._next_held
        self._next_held += 1
        self._held[position] = (bytes(body), references)
        self.held_bytes += len(body) + ENTRY_BYTES
        return position

    def release(self, position: int) -> None:
        """One lane no longer needs this held body; it is freed with the last one."""
        body, references = self._held.pop(position)
        if references > 1:
            self._held[position] = (body, references - 1)
        else:
            self.held_bytes -= len(body) + ENTRY_BYTES

    def get(self, position: int) -> Buffer | None:
        """Return the body, or None: it has to be read from the log, or was in memory only and has been freed."""
        if position >= HELD_POSITION_MIN:
            held = self._held.get(position)
            return None if held is None else held[0]
        if position in self._read_ahead:
            self._read_ahead.remove(position)
            self._ahead_used += 1
        return self._recent.get(position)
