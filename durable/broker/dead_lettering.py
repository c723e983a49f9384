"""Dead letters: read again, readdressed, and appended together with the settlement of the originals.

Their history makes them longer: together, or even alone, they may be more than a segment can take.
"""

from __future__ import annotations

import logging
from contextlib import suppress

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
MANY_S = 1.0
"""How long it holds that enough is dead: looking goes through all queues and segments, and a letter for each
look would be one a second."""
DEAD_SHARE_MIN = 0.5
"""Part of all live bytes that has to be dead for dead letters to use the carrier: with less, the copies may
use it up without freeing a segment."""


async def run_dead_lettering(running: RunningVhost) -> None:
    """Dead-letter messages until cancelled, or until the store has failed: the next start finds them in their
    queues."""
    with suppress(StoreFailed):
        while True:
            for dead in running.vhost.take_dead():
                await _dead_letter(running, dead)
                running.log.backlog.many_letters = False
            running.auto_deletions.due.wake()
            await running.dead_waiting.wait()


async def _dead_letter(running: RunningVhost, dead: DeadRange) -> None:
    """Dead-letter the messages record by record, so that a million of them take no more memory than one record."""
    lane = running.vhost.registry.lanes.get(dead.lane)
    if lane is None:  # The queue has been deleted meanwhile, with everything in it.
        return
    errors: list[Exception] = []
    at = dead.start
    # Each run is looked up only when it is its turn: runs are freed and moved while this waits, and a list of
    # all of them would take a hundred times the memory of the index.
    while (run := next(lane.index.runs(at, dead.end), None)) is not None:
        at = run.first + run.count
        start, end = max(dead.start, run.first), min(dead.end, at)
        found = await running.batch_reader.read(lane, start, end)
        if lane.retired:  # The records that a retired lane still refers to may have been freed.
            break
        errors += await _copy_record(
            running, lane, dead._replace(start=start, end=end), found or []
        )
    if errors:
        logger.warning(
            "%d messages of queue %s (%s) were settled without a dead letter: %s",
            len(errors), dead.queue, dead.reason, errors[0],
        )  # fmt: skip


async def _copy_record(
    running: RunningVhost, lane: Lane, dead: DeadRange, batches: list[tuple[Batch, int]]
) -> list[Exception]:
    """Copy the dead messages of one record, in halves if they are too large together. Return an error for
    each message that got no copy."""
    errors: list[Exception] = []
    left = [dead]
    while left:
        part = left.pop()
        try:
            await _append(running, lane, part, batches)
        except (TooLarge, Malformed, RemoteProtocolError) as error:
            middle = (part.start + part.end) // 2
            if middle > part.start:
                left += [part._replace(start=middle), part._replace(end=middle)]
                await trio.lowlevel.checkpoint()
            elif not await _copy_shortened(running, lane, part, batches, error):
                errors.append(error)
    return errors


async def _copy_shortened(
    running: RunningVhost,
    lane: Lane,
    dead: DeadRange,
    batches: list[tuple[Batch, int]],
    error: Exception,
) -> bool:
    """Copy a single message, with a shorter history if that makes it fit; return whether it got a copy.

    The message is settled in any case: if it stayed, every start would end up here again.
    """
    if isinstance(error, TooLarge):
        try:
            await _append(running, lane, dead, batches, brief=True)
        except TooLarge:
            running.vhost.intake.counts.refused += 1
        else:
            return True
    else:
        running.batch_reader.lost += 1
    await _append(running, lane, dead, [])
    return False


async def _append(
    running: RunningVhost,
    lane: Lane,
    dead: DeadRange,
    batches: list[tuple[Batch, int]],
    *,
    brief: bool = False,
) -> None:
    """Append copies and settlement when there is room. Raises TooLarge, Malformed, RemoteProtocolError; then
    nothing was done."""

    def append() -> None:
        # Otherwise the queue was deleted while this waited, and there may be another one of its name.
        if running.vhost.registry.lanes.get(dead.lane) is lane:
            running.vhost.forward_dead(dead, batches, running.clock.now_us(), brief=brief)
            running.wake()

    backlog = running.log.backlog
    while True:
        try:
            await running.log.with_room(append)
            if trio.current_time() >= backlog.many_until_s:
                backlog.many_letters = False
            return
        except StoreFull:
            backlog.many_letters = _is_mostly_dead(running, lane, dead)
            await trio.sleep(FULL_RETRY_S)
            backlog.many_until_s = trio.current_time() + MANY_S


def _is_mostly_dead(running: RunningVhost, lane: Lane, dead: DeadRange) -> bool:
    """Whether about half of the live bytes are dead, judged by the size of this record. If not, dead messages
    may be spread over every segment: their copies would take the room of what compaction carries forward,
    and free none. If there is a segment to compact, compaction goes first."""
    run = lane.index.find(dead.start)
    if run is None or running.log.to_compact() is not None:
        return False
    count = sum(queue.dead for queue in running.vhost.registry.queues.values())
    dead_bytes = count * record_bytes(run.count, run.size_bytes) / run.count
    return dead_bytes >= DEAD_SHARE_MIN * running.log.statistics().live_bytes
