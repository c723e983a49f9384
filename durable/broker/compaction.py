"""Carrying forward what is left of mostly dead segments, so that one slow queue does not keep them."""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice

import trio

from mesh.errors import TooLarge

from ..errors import StoreError, StoreFull
from ..log.bodies import MESSAGES, move
from ..log.compaction import Budget, Chosen
from ..log.reader import READ_BYTES
from ..log.record import Draft, Record
from ..log.scan import POSITION_MAX
from ..queues.lane import Lane
from ..vhost.store import record_bytes
from .hosted import Hosted

logger = logging.getLogger("durable")
PAUSE_S = 1.0
AT_ONCE, BYTES_AT_ONCE = 256, 256 * 1024
"""Records appended together, and their bytes, unless one alone is more: a commit each would wait for the
disk each time; more would keep publishers waiting for milliseconds."""
LOOKED_AT_ONCE = 1024
"""Records, before others have their turn: two milliseconds."""
POINTED_AT_ONCE = 16
"""The same, of records that now stand elsewhere: up to half a millisecond each, in a lane of a million
messages that came among others."""


async def compact(hosted: Hosted, bytes_per_s: float) -> None:
    """Until cancelled, or the store has failed."""
    budget = Budget(bytes_per_s, trio.current_time())
    while True:
        await trio.sleep(PAUSE_S)
        chosen = hosted.log.to_compact()
        if chosen is None:
            continue
        positions = chosen.positions
        try:
            moved_bytes = await _compact(hosted, chosen, budget)
            hosted.turn()
            freed = await hosted.log.free()
            if moved_bytes > chosen.bytes_max:
                hosted.log.put_off(positions.start)
            elif not (moved_bytes or freed):
                _leave_damaged(hosted, positions)
        except TooLarge as error:
            hosted.log.leave(positions.start)
            logger.warning(
                "compaction of %s leaves log positions %d to %d where they are: a record of %d bytes "
                "is more than a segment takes now (%d)",
                hosted.vhost.name, positions.start, positions.stop - 1, error.size_bytes,
                error.limit_bytes,
            )  # fmt: skip
        except StoreFull:
            continue  # There is no room to make room; publishers are told, acks go on.
        except StoreError as error:
            logger.warning("compaction of %s has ended: %s", hosted.vhost.name, error)
            return


def _leave_damaged(hosted: Hosted, positions: range) -> None:
    """Nothing that can be read stands here any more. What does is damaged, and goes when somebody wants
    it; or its settlement is on its way to the disk. Chosen again, this segment would keep all others
    from their turn."""
    hosted.log.leave(positions.start)
    logger.info(
        "compaction of %s leaves log positions %d to %d: what is left there cannot be read",
        hosted.vhost.name, positions.start, positions.stop - 1,
    )  # fmt: skip


async def _compact(hosted: Hosted, chosen: Chosen, budget: Budget) -> int:
    """Carry forward what is needed of it, unless that is more than it was chosen for; how many bytes."""
    bytes_at_once = min(BYTES_AT_ONCE, hosted.log.append_bytes_max // 4, budget.burst_bytes)
    positions, moved_bytes = chosen.positions, 0
    position = positions.start
    while position < positions.stop:
        records = await hosted.log.read(position, READ_BYTES)
        left = deque(one for one in records if one.position < positions.stop)
        if not left:
            break
        position = left[-1].position + 1
        while left:
            moved_bytes += await _move(hosted, _some(hosted, left, bytes_at_once), budget)
            if moved_bytes > chosen.bytes_max:
                return moved_bytes
    return moved_bytes


def _some(hosted: Hosted, left: deque[Record], bytes_max: float) -> list[tuple[Record, Draft]]:
    """Take from these until there is enough to be appended at once, or they were many: for the lanes that
    still need it."""
    some: list[tuple[Record, Draft]] = []
    size_bytes = 0
    for record in list(islice(left, LOOKED_AT_ONCE)):
        if len(some) == AT_ONCE:
            break
        wanting = _wanting(hosted, record) if record.kind in MESSAGES else {}
        if wanting:
            targets = [target for target in record.targets if target.queue in wanting]
            draft = move(record, targets, record.header.time_us)
            size_bytes += draft.size_bytes
            if some and size_bytes > bytes_max:
                break
            some.append((record, draft))
        left.popleft()
    return some


async def _move(hosted: Hosted, some: list[tuple[Record, Draft]], budget: Budget) -> int:
    """Append them again, then let go of the old ones; how many bytes that took."""
    if not some:
        await trio.lowlevel.checkpoint()
        return 0
    size_bytes = sum(draft.size_bytes for _, draft in some)
    await trio.sleep(budget.wait_s(size_bytes, trio.current_time()))
    budget.take(size_bytes, trio.current_time())
    positions = await hosted.log.append([draft for _, draft in some])
    hosted.carried_from = positions[0]  # Until lanes point there, checkpoints are of before.
    await hosted.log.durable(positions[-1])
    hosted.log.refer_each(positions, 0)  # Else a checkpoint could free them before lanes do.
    for number, ((record, draft), moved) in enumerate(zip(some, positions, strict=True), 1):
        _point_to(hosted, record, draft, moved)
        if number % POINTED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    hosted.carried_from = POSITION_MAX
    hosted.log.release_each(positions, 0)
    return size_bytes


def _point_to(hosted: Hosted, record: Record, draft: Draft, moved: int) -> None:
    """It is durable at log position `moved`, too: lanes need the old one no more."""
    still = _wanting(hosted, record)  # Some may have been settled meanwhile, and have let go.
    for lane_id, first in draft.targets:
        lane = still.get(lane_id)
        run = None if lane is None else lane.index.find(first)
        if lane is None or run is None:
            continue
        lane.move(first, moved)
        size_bytes = record_bytes(run.count, run.size_bytes)
        hosted.log.refer(moved, 1, size_bytes)
        hosted.log.release(record.position, 1, size_bytes)


def _wanting(hosted: Hosted, record: Record) -> dict[int, Lane]:
    """Lanes in which a message of this record is not settled, and stands in this record."""
    found: dict[int, Lane] = {}
    for lane_id, first in record.targets:
        lane = hosted.vhost.lane(lane_id)
        run = None if lane is None else lane.index.find(first)
        if lane is None or run is None or run.position != record.position:
            continue
        if not lane.settled.all(run.first, run.first + run.count):
            found[lane_id] = lane
    return found
