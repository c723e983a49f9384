"""Bodies that are in memory no more, read from the log together with what stands behind them.

    consumer a ─┐                        ┌─> its body
    consumer b ─┼─ one after the other ──┤
    reader c  ──┘      a trip            └─> what comes next: probably wanted soon, by whomever

Whoever waits for a trip looks again before it goes on one of its own: a hundred consumers of a hundred queues whose
messages came in turn find what the first of them has read. How far a trip reads follows what comes of it: where
what was read ahead is pushed out before anybody asks, as with many that are far apart, less; where somebody goes on
behind a trip, more again. Who goes on just where one ended reads twice as far as that, whatever others do.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from ..errors import RecordDamaged
from ..log.bodies import MESSAGES, batch_bytes
from ..log.reader import READ_BYTES
from ..log.record import Buffer, Record
from ..vhost.bodies import Bodies

TRIP_BYTES = 128 * 1024
"""What a trip takes besides reading, in bytes that could be read meanwhile, about."""
LEAST_BYTES = 8 * 1024
ENDS_MAX = 1000
"""Of trips, those at the highest log positions."""


class End(NamedTuple):
    """Of a trip."""

    position: int
    """Log position behind its last record."""
    records: int
    limit_bytes: int
    """What it had, while others may have had more or less."""


class Fetching:
    """Of one vhost."""

    def __init__(self, read: Callable[[int, int], Awaitable[list[Record]]], bodies: Bodies) -> None:
        """
        Args:
            read: `Log.read`.
        """
        self._read, self._bodies = read, bodies
        self._turn = trio.Lock()
        self._most_bytes = max(1, min(READ_BYTES, bodies.read_bytes_max))
        self._limit_bytes = self._most_bytes
        self._ends: list[End] = []
        """Of trips that nobody has gone on from, in order."""

    async def body(self, position: int) -> Buffer | None:
        """Of the record at this log position; None: it is damaged, or there no more. Raises StoreFailed."""
        async with self._turn:
            body = self._bodies.get(position)
            if body is not None:
                return body
            start, limit_bytes = self._plan(position)
            body = await self._trip(start, limit_bytes, position)
            if body is None and start < position:  # Records became longer.
                body = await self._trip(position, limit_bytes, position)
            return body

    def _plan(self, position: int) -> tuple[int, int]:
        """Where the next trip begins, and how far it goes: on from where an earlier one ended, if as many records as
        that had come by this log position, for others are on their way, too, and want what is between."""
        asked, vain_bytes = self._bodies.ahead_told()
        index = bisect_right(self._ends, position, key=lambda end: end.position) - 1
        goes_on = index >= 0 and position - self._ends[index].position < self._ends[index].records
        if vain_bytes > asked * TRIP_BYTES:  # More than the trips that were spared.
            self._limit_bytes = max(self._limit_bytes // 2, min(LEAST_BYTES, self._most_bytes))
        elif goes_on:
            self._limit_bytes = min(2 * self._limit_bytes, self._most_bytes)
        if not goes_on:
            return position, self._limit_bytes
        end = self._ends.pop(index)
        if end.position < position:
            return end.position, self._limit_bytes
        return position, min(max(2 * end.limit_bytes, self._limit_bytes), self._most_bytes)

    async def _trip(self, start: int, limit_bytes: int, wanted: int) -> Buffer | None:
        """Read from there on; the body of the record that is wanted, if it comes by."""
        found: Buffer | None = None
        records = await self._read(start, limit_bytes)
        for record in records:
            if record.kind not in MESSAGES:
                continue
            try:
                body = bytes(batch_bytes(record))  # A view holds all it was read with.
            except RecordDamaged:
                continue  # If it is not this one, somebody else will find out.
            self._bodies.keep(record.position, body, ahead=record.position != wanted)
            if record.position == wanted:
                found = body
        if records:
            insort(self._ends, End(records[-1].position + 1, len(records), limit_bytes))
            del self._ends[:-ENDS_MAX]
        return found
