"""Bodies that are in memory no more, read from the log together with what stands behind them.

    consumer a ─┐                        ┌─> its body
    consumer b ─┼─ one after the other ──┤
    reader c  ──┘      a trip            └─> what comes next: probably wanted soon, by whomever

Whoever waits for a trip looks again before it goes on one of its own: a hundred consumers of a hundred queues whose
messages came in turn find what the first of them has read. Who goes on where a trip ended reads farther each time. A
trip that begins anywhere else reads less than the one before, where what was read ahead is pushed out before anybody
asks, as with many that are far apart; and more again, where it is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from ..errors import RecordDamaged
from ..log.bodies import MESSAGES, batch_bytes
from ..log.marks import STRIDE_BYTES
from ..log.reader import READ_BYTES
from ..log.record import Buffer, Record
from ..vhost.bodies import Bodies

TRIP_BYTES = 128 * 1024
"""What a trip takes besides reading, in bytes that could be read meanwhile, about."""
LEAST_BYTES = STRIDE_BYTES
"""As much is read in front of what is wanted, so less would not be sooner there."""
ENDS_MAX = 1000


class End(NamedTuple):
    """Of a trip, by the log position behind it."""

    limit_bytes: int
    """What it had."""
    record_bytes: int
    """Of what it read, on average."""


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
        self._anew_bytes = self._most_bytes
        """For a trip that begins where none has ended."""
        self._ends: dict[int, End] = {}
        """Those that nobody has gone on from; the oldest first, and the first to be forgotten."""
        self._in_order: list[int] = []

    async def body(self, position: int) -> Buffer | None:
        """Of the record at this log position; None: it is damaged, or there no more. Raises StoreFailed."""
        async with self._turn:
            body = self._bodies.get(position)
            if body is not None:
                return body
            start, limit_bytes = self._plan(position)
            end, body = await self._trip(start, limit_bytes, position)
            if (
                start < position and end <= position
            ):  # Records are longer here than they were before.
                _, body = await self._trip(position, limit_bytes, position)
            return body

    def _plan(self, position: int) -> tuple[int, int]:
        """Where a trip begins, and how far it goes: on from the end of another one, if what is between costs less
        than a trip, for others are on their way there, too."""
        asked, vain_bytes = self._bodies.ahead_told()
        in_vain = vain_bytes > asked * TRIP_BYTES
        if index := bisect_right(self._in_order, position):
            start = self._in_order[index - 1]
            end = self._ends[start]
            between_bytes = (position - start) * end.record_bytes
            if between_bytes < max(TRIP_BYTES, end.limit_bytes):
                self._forget(start)
                further = end.limit_bytes if in_vain and between_bytes else 2 * end.limit_bytes
                return start, min(max(further, 2 * between_bytes), self._most_bytes)
        if in_vain:
            self._anew_bytes = max(self._anew_bytes // 2, min(LEAST_BYTES, self._most_bytes))
        else:
            self._anew_bytes = min(self._anew_bytes * 2, self._most_bytes)
        return position, self._anew_bytes

    async def _trip(self, start: int, limit_bytes: int, wanted: int) -> tuple[int, Buffer | None]:
        """Where it ended, and the body that is wanted, if it came by."""
        found: Buffer | None = None
        records = await self._read(start, limit_bytes)
        for record in records:
            if record.kind not in MESSAGES:
                continue
            try:
                # Copied: a view holds all that was read at once, long after most of that has gone.
                body = bytes(batch_bytes(record))
            except RecordDamaged:
                continue  # If it is not this one, somebody else will find out.
            self._bodies.keep(record.position, body, ahead=record.position != wanted)
            if record.position == wanted:
                found = body
        if not records:
            return start, found
        end = records[-1].position + 1
        read_bytes = sum([record.header.total_bytes for record in records])
        self._remember(end, End(limit_bytes, read_bytes // len(records)))
        return end, found

    def _remember(self, position: int, end: End) -> None:
        if position in self._ends:
            self._forget(position)
        insort(self._in_order, position)
        self._ends[position] = end
        if len(self._ends) > ENDS_MAX:
            self._forget(next(iter(self._ends)))

    def _forget(self, position: int) -> None:
        del self._ends[position]
        del self._in_order[bisect_left(self._in_order, position)]
