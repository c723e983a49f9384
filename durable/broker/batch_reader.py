"""Batches of lanes, by sequence: from memory or from the log, and counted as lost if they cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import Batch

from ..log.record import Record
from ..queues.lane import Lane
from ..queues.runs import Run
from ..vhost.bodies import Bodies
from ..vhost.groups import batches_in
from .body_reader import BodyReader

logger = logging.getLogger("durable")

UNREADABLE_MAX = 10_000
"""Unreadable records that are remembered, so that their messages are counted as lost once only; messages of
further ones are counted each time."""


class BatchReader:
    """Reads batches for all sessions of one vhost."""

    def __init__(self, read: Callable[[int, int], Awaitable[list[Record]]], bodies: Bodies) -> None:
        """
        Args:
            read: `Log.read`.
        """
        self._bodies, self._body_reader = bodies, BodyReader(read, bodies)
        self.lost = 0
        """Number of messages that could not be read any more."""
        self._unreadable: set[tuple[int, int]] = set()
        """Lane and log position of unreadable records, so that each counts once, however often it is asked
        for."""

    async def read(self, lane: Lane, start: int, end: int) -> list[tuple[Batch, int]] | None:
        """Return the batches with messages [`start`, `end`) of a lane, as far as they are in the same record
        as the first message, each with the sequence of its first message.

        None: the record is damaged or gone, which has been logged and counted; or the queue or stream is
        deleted, and the record with it.
        """
        tried = -1
        while (run := lane.index.find(start)) is not None and not lane.retired:
            # Compaction has not moved it meanwhile, so it cannot be read.
            if run.position == tried:
                self._count_lost(lane, run)
                break
            tried = run.position
            body = self._bodies.get(tried) or await self._body_reader.body(tried)
            if body is not None:
                try:
                    return batches_in(body, run.first, start, end)
                except RemoteProtocolError:
                    pass  # Readable but not a valid batch or group: treated as damaged.
        return None

    def _count_lost(self, lane: Lane, run: Run) -> None:
        """Count and log the unsettled messages of a run that cannot be read."""
        record = lane.id, run.position
        if record in self._unreadable:
            return
        if len(self._unreadable) < UNREADABLE_MAX:
            self._unreadable.add(record)
        count = lane.settled.count_unsettled(run.first, run.first + run.count)
        self.lost += count
        logger.error(
            "%d messages of lane %d cannot be read: the record at log position %d is damaged or gone",
            count, *record,
        )  # fmt: skip
