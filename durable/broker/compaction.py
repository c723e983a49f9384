"""Compaction: carries forward what is left of mostly settled segments, so that one slow queue does not keep
them."""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from math import inf

import trio

from mesh.errors import TooLarge

from ..errors import StoreError, StoreFull
from ..log.bodies import MESSAGES, move
from ..log.compaction import MARGIN, Budget, Chosen
from ..log.reader import READ_BYTES
from ..log.record import Record
from ..log.scan import POSITION_MAX
from ..vhost.store import record_bytes
from .cut_estimate import CutEstimate, NeededRecord, lanes_needing, needed_of
from .running_vhost import RunningVhost

logger = logging.getLogger("durable")
PAUSE_S = 1.0
CUT_BYTES_AT_ONCE = 1 << 20
"""Bytes of records that are cut before other tasks run: some milliseconds."""
RECORDS_AT_ONCE, BYTES_AT_ONCE = 256, 256 * 1024
"""Records appended together, and their bytes, unless one alone is larger. With a commit for each record,
compaction would wait for the disk each time; with more per commit, publishers would wait for milliseconds."""
COUNTED_AT_ONCE = 1024
"""Records counted before other tasks run: two milliseconds."""
POINTED_AT_ONCE = 16
"""Moved records that lanes are pointed to before other tasks run. Each takes up to half a millisecond, in a
lane of a million messages that came among those of other lanes."""


async def compact(running: RunningVhost, bytes_per_s: float) -> None:
    """Compact one segment after the other, until cancelled or the store has failed."""
    budget = Budget(bytes_per_s, trio.current_time())
    estimate = CutEstimate(running)
    while True:
        await trio.sleep(PAUSE_S)
        chosen = running.log.to_compact() or await estimate.choose()
        if chosen is None:
            continue
        positions = chosen.positions
        try:
            moved_bytes = await _compact(running, chosen, budget)
            running.pump_once()
            await running.log.free()  # On a full disk a snapshot may be needed first.
            again = running.log.to_compact()
            if moved_bytes > chosen.bytes_max:
                running.log.put_off(chosen, moved_bytes)
            elif not moved_bytes and chosen.cut:
                running.log.put_off(chosen, inf)
            elif not moved_bytes and again is not None and again.positions == positions:
                _skip_damaged(running, positions)
        except TooLarge as error:
            running.log.exclude_segment(positions.start)
            logger.warning(
                "compaction of vhost %s skips log positions %d to %d: a record of %d bytes is more than "
                "a segment can hold now (%d)",
                running.vhost.name, positions.start, positions.stop - 1, error.size_bytes,
                error.limit_bytes,
            )  # fmt: skip
        except StoreFull:
            continue  # There is no room even for the copies. Publishers are refused, acks go on.
        except StoreError as error:
            logger.warning("compaction of vhost %s has stopped: %s", running.vhost.name, error)
            return


def _skip_damaged(running: RunningVhost, positions: range) -> None:
    """Leave a segment alone of which nothing could be moved. What is left there is damaged, and will be
    settled when a consumer wants it; or its settlement is on its way to the disk. If this segment were
    chosen again, no other one would have its turn."""
    running.log.exclude_segment(positions.start)
    logger.info(
        "compaction of vhost %s skips log positions %d to %d: the remaining records cannot be read",
        running.vhost.name, positions.start, positions.stop - 1,
    )  # fmt: skip


async def _compact(running: RunningVhost, chosen: Chosen, budget: Budget) -> int:
    """Carry forward what is needed of a segment, unless that is more than it was chosen for; return its
    bytes.

    They are counted first, which reads the segment twice: the estimate leaves out keys, properties and
    headers, which may be most of it.
    """
    backlog = running.log.backlog
    # Reserved from now on: whatever others write meanwhile takes from the same room.
    backlog.moved_bytes = int(min(chosen.bytes_max, MARGIN * chosen.needed_bytes))
    try:
        needed_bytes = await _count(running, chosen, budget)
        if needed_bytes > chosen.bytes_max:
            return needed_bytes
        moved_bytes = 0
        walk = _Walk(running, chosen.positions, budget.burst_bytes)
        while (some := await walk.read()) is not None:
            backlog.moved_bytes = max(0, needed_bytes - moved_bytes)
            moved_bytes += await _move(running, some, budget)
    finally:
        backlog.moved_bytes = 0
    return moved_bytes


async def _count(running: RunningVhost, chosen: Chosen, budget: Budget) -> int:
    """Return how many bytes would be carried forward; counting stops when they are too many."""
    needed_bytes, growth_bytes = 0, _growth_bytes(running)
    walk = _Walk(running, chosen.positions, budget.burst_bytes)
    while needed_bytes <= chosen.bytes_max and (some := await walk.read()) is not None:
        needed_bytes += sum(one.size_bytes + growth_bytes for one in some)
    return needed_bytes


def _growth_bytes(running: RunningVhost) -> int:
    """Return by how much encryption makes each copy longer than its draft."""
    cipher = running.log.cipher
    return 0 if cipher is None else cipher.growth_bytes


class _Walk:
    """The needed records in a range of log positions, a few at a time."""

    def __init__(self, running: RunningVhost, positions: range, burst_bytes: float) -> None:
        self._running, self._position, self._end = running, positions.start, positions.stop
        self._bytes_max = min(BYTES_AT_ONCE, running.log.append_bytes_max // 4, burst_bytes)
        self._left: deque[Record] = deque()

    async def read(self) -> list[NeededRecord] | None:
        """Return enough records to be appended at once, or fewer if too many had to be looked at. None: no
        more are left."""
        left = self._left
        if not left:
            if self._position < self._end:
                records = await self._running.log.read(self._position, READ_BYTES)
                left.extend(one for one in records if one.position < self._end)
            if not left:
                return None
            self._position = left[-1].position + 1
        some: list[NeededRecord] = []
        size_bytes = cut_bytes = 0
        for record in list(islice(left, COUNTED_AT_ONCE)):
            if len(some) == RECORDS_AT_ONCE:
                break
            needed = needed_of(self._running.vhost, record) if record.kind in MESSAGES else None
            if needed is not None:
                size_bytes += needed.size_bytes
                if some and size_bytes > self._bytes_max:
                    break
                some.append(needed)
                cut_bytes += 0 if needed.cut is None else record.header.body_bytes
            left.popleft()
            if cut_bytes > CUT_BYTES_AT_ONCE:
                break
        await trio.lowlevel.checkpoint()
        return some


async def _move(running: RunningVhost, some: list[NeededRecord], budget: Budget) -> int:
    """Append copies of the records, then release the originals; return the bytes of the copies.

    On a full disk the budget does not apply: publishers wait for the space, and acks that come meanwhile take
    the room of the copies.
    """
    if not some:
        return 0
    drafts = [move(one.record, one.targets, one.cut) for one in some]
    if any(one.cut is not None for one in some):
        # A cut record says by itself that the messages cut out are settled. So what settled them has to be
        # durable before: it may be a dead letter, which a power cut could keep from the disk.
        await running.log.wait_durable(running.log.end - 1)
    size_bytes = sum(draft.size_bytes for draft in drafts) + len(drafts) * _growth_bytes(running)
    if not running.log.full:
        await trio.sleep(budget.wait_s(size_bytes, trio.current_time()))
        budget.take(size_bytes, trio.current_time())
    positions = await running.log.append(drafts)
    # Until lanes point to the copies, checkpoints are as of before them.
    running.carried_from = positions[0]
    await running.log.wait_durable(positions[-1])
    # Otherwise a checkpoint could free their segments before lanes refer to the copies.
    running.log.refer_each(positions, 0)
    for number, (needed, moved) in enumerate(zip(some, positions, strict=True), 1):
        _repoint(running, needed, moved)
        if number % POINTED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    running.carried_from = POSITION_MAX
    running.log.release_each(positions, 0)
    return size_bytes


def _repoint(running: RunningVhost, needed: NeededRecord, moved: int) -> None:
    """The record is durable at log position `moved`, too: point its lanes there, which frees the original."""
    record = needed.record
    # Messages may have been settled meanwhile, and their lanes have released the record.
    lanes = lanes_needing(running.vhost, record)
    for lane_id, first in needed.targets:
        if (lane := lanes.get(lane_id)) is None or (run := lane.index.find(first)) is None:
            continue
        lane.move(first, moved)
        size_bytes = record_bytes(run.count, run.size_bytes)
        running.log.refer(moved, 1, size_bytes)
        running.log.release(record.position, 1, size_bytes)
