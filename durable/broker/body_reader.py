"""Bodies that are no longer in memory, read from the log together with those behind them.

    consumer a ─┐                        ┌─> its body
    consumer b ─┼─ one after the other ──┤
    reader c  ──┘   one read of the log  └─> the bodies behind it: probably wanted soon, by any of them

A task that has waited for another one's read looks in memory again before it makes its own: a hundred
consumers of a hundred queues whose messages came in turn all find what the first of them has read. How much
is read at once adapts. If bodies that were read ahead are pushed out before anybody asks for them, as with
many consumers that are far apart, reads become shorter; if a consumer goes on behind a read, they become
longer again. A read that begins exactly where one ended is twice as long as that one, whatever others do.
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

READ_COST_BYTES = 128 * 1024
"""Approximate fixed cost of a read, in bytes that could be read in that time."""
LIMIT_BYTES_MIN = 8 * 1024
ENDS_MAX = 1000
"""Ends of reads that are remembered; those at the highest log positions are kept."""


class ReadEnd(NamedTuple):
    """Where a read ended."""

    position: int
    """Log position behind the last record of the read."""
    records: int
    limit_bytes: int
    """The limit of this read; other reads may have had a higher or lower one."""


class BodyReader:
    """Reads bodies for all sessions of one vhost."""

    def __init__(self, read: Callable[[int, int], Awaitable[list[Record]]], bodies: Bodies) -> None:
        """
        Args:
            read: `Log.read`.
        """
        self._read, self._bodies = read, bodies
        self._lock = trio.Lock()
        self._limit_bytes_max = max(1, min(READ_BYTES, bodies.read_bytes_max))
        self._limit_bytes = self._limit_bytes_max
        self._ends: list[ReadEnd] = []
        """Ends of reads from which no later read has gone on, sorted."""

    async def body(self, position: int) -> Buffer | None:
        """Return the body of the record at this log position; None if it is damaged or no longer there.
        Raises StoreFailed."""
        async with self._lock:
            body = self._bodies.get(position)
            if body is not None:
                return body
            start, limit_bytes = self._plan(position)
            body = await self._read_ahead(start, limit_bytes, position)
            # Records became longer, so the read ended before the wanted one.
            if body is None and start < position:
                body = await self._read_ahead(position, limit_bytes, position)
            return body

    def _plan(self, position: int) -> tuple[int, int]:
        """Return where the next read begins, and how many bytes it may take.

        If an earlier read ended not far before `position` (by fewer records than it took), the next
        one begins at that end: other consumers are on their way there, too, and want the records between.
        """
        asked, wasted_bytes = self._bodies.take_ahead_counts()
        index = bisect_right(self._ends, position, key=lambda end: end.position) - 1
        continues = index >= 0 and position - self._ends[index].position < self._ends[index].records
        # More bytes were wasted than the spared reads would have cost.
        if wasted_bytes > asked * READ_COST_BYTES:
            self._limit_bytes = max(
                self._limit_bytes // 2, min(LIMIT_BYTES_MIN, self._limit_bytes_max)
            )
        elif continues:
            self._limit_bytes = min(2 * self._limit_bytes, self._limit_bytes_max)
        if not continues:
            return position, self._limit_bytes
        end = self._ends.pop(index)
        if end.position < position:
            return end.position, self._limit_bytes
        return position, min(max(2 * end.limit_bytes, self._limit_bytes), self._limit_bytes_max)

    async def _read_ahead(self, start: int, limit_bytes: int, wanted: int) -> Buffer | None:
        """Read from `start` on; return the body of the `wanted` record, if it is among what was read."""
        found: Buffer | None = None
        records = await self._read(start, limit_bytes)
        for record in records:
            if record.kind not in MESSAGES:
                continue
            try:
                # Copied: a view keeps everything alive that was read with it.
                body = bytes(batch_bytes(record))
            except RecordDamaged:
                continue  # If it is not the wanted record, whoever wants it will find the damage.
            self._bodies.keep(record.position, body, read_ahead=record.position != wanted)
            if record.position == wanted:
                found = body
        if records:
            insort(self._ends, ReadEnd(records[-1].position + 1, len(records), limit_bytes))
            del self._ends[:-ENDS_MAX]
        return found
