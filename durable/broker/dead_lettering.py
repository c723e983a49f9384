"""Dead letters: read again, readdressed, and appended together with the settlement of the originals.

Their history makes them longer: together, or even alone, they may be more than a segment can take.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import ceil

import trio

from mesh.errors import RemoteProtocolError, TooLarge
from mesh.protocol.batch import Batch

from ..errors import Malformed, StoreFailed, StoreFull
from ..queues.journal import DeadRange
from ..queues.lane import Lane
from ..vhost.store import record_bytes
from .running_vhost import RunningVhost

logger = logging.getLogger("durable")
FULL_RETRY_S = 1.0
"""Pause between attempts while the disk is full."""
LOOK_SHARE = 1 / 16
"""Part of a segment that dead letters may take of the carrier before another look: less than the tenth that compaction
has to free, so that it comes first once they have freed as much of one segment."""
DEAD_SHARE_MIN = 0.5
"""Part of all live bytes that has to be dead for dead letters to use the carrier: with less, the copies may
use it up without freeing a segment."""


class DeadLettering:
    """Dead-letters the messages of one vhost, until cancelled, or until the store has failed: the next start finds them
    in their queues."""

    def __init__(self, running: RunningVhost) -> None:
        self._running = running
        self._carrier_letters = 0
        """How many more dead letters may use the carrier until the next look, which goes through all queues and segments."""

    async def run(self) -> None:
        with suppress(StoreFailed):
            while True:
                for dead in self._running.vhost.take_dead():
                    await self._dead_letter(dead)
                self._carrier_letters, self._running.log.backlog.many_letters = 0, False
                self._running.auto_deletions.due.wake()
                await self._running.dead_waiting.wait()

    async def _dead_letter(self, dead: DeadRange) -> None:
        """Dead-letter the messages record by record, so that a million of them take no more memory than one record."""
        lane = self._running.vhost.registry.lanes.get(dead.lane)
        if lane is None:  # The queue has been deleted meanwhile, with everything in it.
            return
        errors: list[Exception] = []
        at = dead.start
        # Each run is looked up only when it is its turn: runs are freed and moved while this waits, and a list of
        # all of them would take a hundred times the memory of the index.
        while (run := next(lane.index.runs(at, dead.end), None)) is not None:
            at = run.first + run.count
            start, end = max(dead.start, run.first), min(dead.end, at)
            found = await self._running.batch_reader.read(lane, start, end)
            if lane.retired:  # The records that a retired lane still refers to may have been freed.
                break
            part = dead._replace(start=start, end=end)
            errors += await self._copy_record(lane, part, found or [])
        if errors:
            logger.warning(
                "%d messages of queue %s (%s) were settled without a dead letter: %s",
                len(errors), dead.queue, dead.reason, errors[0],
            )  # fmt: skip

    async def _copy_record(
        self, lane: Lane, dead: DeadRange, batches: list[tuple[Batch, int]]
    ) -> list[Exception]:
        """Copy the dead messages of one record, in halves if they are too large together. Return an error for
        each message that got no copy."""
        errors: list[Exception] = []
        left = [dead]
        while left:
            part = left.pop()
            try:
                await self._append(lane, part, batches)
            except (TooLarge, Malformed, RemoteProtocolError) as error:
                middle = (part.start + part.end) // 2
                if middle > part.start:
                    left += [part._replace(start=middle), part._replace(end=middle)]
                    await trio.lowlevel.checkpoint()
                elif not await self._copy_shortened(lane, part, batches, error):
                    errors.append(error)
        return errors

    async def _copy_shortened(
        self, lane: Lane, dead: DeadRange, batches: list[tuple[Batch, int]], error: Exception
    ) -> bool:
        """Copy a single message, with a shorter history if that makes it fit; return whether it got a copy.

        The message is settled in any case: if it stayed, every start would end up here again.
        """
        if isinstance(error, TooLarge):
            try:
                await self._append(lane, dead, batches, brief=True)
            except TooLarge:
                self._running.vhost.intake.counts.refused += 1
            else:
                return True
        else:
            self._running.batch_reader.lost += 1
        await self._append(lane, dead, [])
        return False

    async def _append(
        self, lane: Lane, dead: DeadRange, batches: list[tuple[Batch, int]], *, brief: bool = False
    ) -> None:
        """Append copies and settlement when there is room. Raises TooLarge, Malformed, RemoteProtocolError; then
        nothing was done."""
        running, backlog = self._running, self._running.log.backlog

        def append() -> None:
            # Otherwise the queue was deleted while this waited, and there may be another one of its name.
            if running.vhost.registry.lanes.get(dead.lane) is lane:
                running.vhost.forward_dead(dead, batches, running.clock.now_us(), brief=brief)
                running.wake()

        while True:
            try:
                await running.log.with_room(append)
            except StoreFull as error:
                had_carrier = backlog.many_letters
                letter_bytes = error.needed_bytes / (dead.end - dead.start)
                self._carrier_letters = _count_for_carrier(running, lane, dead, letter_bytes)
                backlog.many_letters = self._carrier_letters > 0
                if had_carrier or not backlog.many_letters:
                    await trio.sleep(FULL_RETRY_S)
            else:
                self._carrier_letters = max(0, self._carrier_letters - (dead.end - dead.start))
                backlog.many_letters = self._carrier_letters > 0
                return


def _count_for_carrier(
    running: RunningVhost, lane: Lane, dead: DeadRange, letter_bytes: float
) -> int:
    """Return how many dead letters may use the carrier before another look: as many as leave about half of the live
    bytes dead, judged by the size of this record. If fewer are dead, they may be spread over every segment: their
    copies would take the room of what compaction carries forward, and free none. If there is a segment to compact,
    compaction goes first.

    Args:
        letter_bytes: what each message of the range takes with its settlement, or that alone if it gets no copy.
    """
    run = lane.index.find(dead.start)
    if run is None or running.log.to_compact() is not None:
        return 0
    each_bytes = record_bytes(run.count, run.size_bytes) / run.count
    count = sum(queue.dead for queue in running.vhost.registry.queues.values())
    others = DEAD_SHARE_MIN * running.log.statistics().live_bytes / each_bytes
    most = LOOK_SHARE * running.log.segment_bytes / max(each_bytes, letter_bytes)
    return max(0, ceil(min(count - others, most)))
