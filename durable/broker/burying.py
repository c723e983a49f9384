"""Dead letters: read again, readdressed, and appended together with what settles the originals."""

from __future__ import annotations

import trio

from mesh.protocol.batch import Batch

from ..errors import StoreFull
from ..queues.journal import Dead
from ..queues.lane import Lane
from .hosted import Hosted

FULL_PAUSE_S = 1.0


async def bury_the_dead(hosted: Hosted) -> None:
    """Until cancelled."""
    while True:
        for dead in hosted.vhost.take_dead():
            await _bury(hosted, dead)
        await hosted.died.wait()


async def _bury(hosted: Hosted, dead: Dead) -> None:
    """Record by record, so that a million of them at once take no more memory than one."""
    lane = hosted.vhost.lane(dead.lane)
    if lane is None:  # The queue is gone meanwhile, with all that was in it.
        return
    for run in list(lane.index.runs(dead.start, dead.end)):
        start, end = max(dead.start, run.first), min(dead.end, run.first + run.count)
        found = await hosted.batch(lane, start)
        await _append(hosted, lane, dead._replace(start=start, end=end), [found] if found else [])


async def _append(hosted: Hosted, lane: Lane, dead: Dead, batches: list[tuple[Batch, int]]) -> None:
    def bury() -> None:
        # Else the queue went while this waited; one of its name may be there, and is another one.
        if hosted.vhost.lane(dead.lane) is lane:
            hosted.vhost.bury(dead, batches, hosted.clock.now_us())
            hosted.wake()

    while True:
        try:
            await hosted.log.with_room(bury)
            return
        except StoreFull:
            await trio.sleep(FULL_PAUSE_S)
