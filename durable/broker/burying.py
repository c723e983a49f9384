"""Dead letters: read again, readdressed, and appended together with what settles the originals.

Their story makes them longer: together, or even alone, they may be more than a segment takes.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from mesh.errors import RemoteProtocolError, TooLarge
from mesh.protocol.batch import Batch

from ..errors import Malformed, StoreFailed, StoreFull
from ..queues.journal import Dead
from ..queues.lane import Lane
from ..vhost.store import record_bytes
from .hosted import Hosted

logger = logging.getLogger("durable")
FULL_PAUSE_S = 1.0
DEAD_SHARE_MIN = 0.5
"""Of all that something needs: where less is dead, copies in the carrier may free no segment."""


async def bury_the_dead(hosted: Hosted) -> None:
    """Until cancelled, or the store has failed: the next start finds the dead where they were."""
    with suppress(StoreFailed):
        while True:
            for dead in hosted.vhost.take_dead():
                await _bury(hosted, dead)
            hosted.endings.due.wake()
            await hosted.died.wait()


async def _bury(hosted: Hosted, dead: Dead) -> None:
    """Record by record, so that a million of them at once take no more memory than one."""
    lane = hosted.vhost.registry.lanes.get(dead.lane)
    if lane is None:  # The queue is gone meanwhile, with all that was in it.
        return
    without: list[Exception] = []
    at = dead.start
    # The next one is looked up each time: runs go and move while this waits, and a list of all would
    # take a hundred times what the index does.
    while (run := next(lane.index.runs(at, dead.end), None)) is not None:
        at = run.first + run.count
        start, end = max(dead.start, run.first), min(dead.end, at)
        found = await hosted.batches(lane, start, end)
        if lane.retired:  # What it still refers to may have been freed.
            break
        without += await _copy(hosted, lane, dead._replace(start=start, end=end), found or [])
    if without:
        logger.warning(
            "%d messages of queue %s (%s) are settled without a dead letter: %s",
            len(without), dead.queue, dead.reason, without[0],
        )  # fmt: skip


async def _copy(
    hosted: Hosted, lane: Lane, dead: Dead, batches: list[tuple[Batch, int]]
) -> list[Exception]:
    """Those of one record, in halves where they do not go together; for each without a copy, why."""
    without: list[Exception] = []
    left = [dead]
    while left:
        part = left.pop()
        try:
            await _append(hosted, lane, part, batches)
        except (TooLarge, Malformed, RemoteProtocolError) as error:
            middle = (part.start + part.end) // 2
            if middle > part.start:
                left += [part._replace(start=middle), part._replace(end=middle)]
                await trio.lowlevel.checkpoint()
            elif not await _copy_briefly(hosted, lane, part, batches, error):
                without.append(error)
    return without


async def _copy_briefly(
    hosted: Hosted, lane: Lane, dead: Dead, batches: list[tuple[Batch, int]], error: Exception
) -> bool:
    """A message alone, with a shorter story if that is all it takes; whether it got a copy.

    It is settled either way: left where it is, it would end up here again at every start.
    """
    if isinstance(error, TooLarge):
        try:
            await _append(hosted, lane, dead, batches, brief=True)
        except TooLarge:
            hosted.vhost.intake.counts.refused += 1
        else:
            return True
    else:
        hosted.lost += 1
    await _append(hosted, lane, dead, [])
    return False


async def _append(
    hosted: Hosted, lane: Lane, dead: Dead, batches: list[tuple[Batch, int]], *, brief: bool = False
) -> None:
    """When there is room. Raises TooLarge, Malformed, RemoteProtocolError: nothing was done."""

    def bury() -> None:
        # Else the queue went while this waited; one of its name may be there, and is another one.
        if hosted.vhost.registry.lanes.get(dead.lane) is lane:
            hosted.vhost.bury(dead, batches, hosted.clock.now_us(), brief=brief)
            hosted.wake()

    while True:
        try:
            await hosted.log.with_room(bury)
            hosted.log.waiting.letters = False
            return
        except StoreFull:
            hosted.log.waiting.letters = _frees_most(hosted, lane, dead)
            await trio.sleep(FULL_PAUSE_S)


def _frees_most(hosted: Hosted, lane: Lane, dead: Dead) -> bool:
    """Whether half of all that something needs is dead, by how much this one takes. Else it may be in every
    segment, and copies would take the room of what compaction carries forward and free none; where there is
    something to carry forward, that goes first."""
    run = lane.index.find(dead.start)
    if run is None or hosted.log.to_compact() is not None:
        return False
    count = sum(queue.dead for queue in hosted.vhost.registry.queues.values())
    dead_bytes = count * record_bytes(run.count, run.size_bytes) / run.count
    return dead_bytes >= DEAD_SHARE_MIN * hosted.log.statistics().live_bytes
