"""The segment ahead and the spares: made while others write, and tried again for as long as there is no space."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mesh.waker import Waker

from ..errors import StoreFull
from .placing import Spare
from .store import Store

logger = logging.getLogger("durable.log")
Call = Callable[..., Awaitable[Any]]
"""Makes a call of the store in a worker thread."""


async def make_ahead(
    store: Store, call: Call, wanted: Waker, *, space: Callable[[], Awaitable[object]],
    tell: Callable[[], object], fail: Callable[[str, Exception], object],
) -> None:  # fmt: skip
    """One segment ahead, always, and then spares; until the log has stopped.

    Args:
        wanted: woken when there may be something to make.
        space: returns when there may be space again.
        tell: called after each attempt, `fail` before that when the disk has failed.
    """
    committer = store.committer
    while not committer.stopped:
        number, refused = committer.wanted_segment(), False
        try:
            if number is not None:
                refused = not await _make_segment(store, call, number)
                tell()
            while not committer.stopped and (spare := committer.placer.wanted_spare()) is not None:
                made = await _make_spare(store, call, spare)
                tell()
                if not made:
                    break
        except Exception as error:
            fail("making a segment failed", error)
            tell()
        if refused:
            await space()
        elif number is None:
            await wanted.wait()


async def _make_segment(store: Store, call: Call, number: int) -> bool:
    """Whether there was space for it."""
    committer, full = store.committer, store.committer.full
    try:
        await call(store.make_segment, number)
    except StoreFull as error:
        committer.segment_refused(error.free_bytes)
        if not full:
            logger.warning("segment %d cannot be made: %s", number, error)
        return False
    committer.segment_made()
    if full:
        logger.warning("segment %d made: there is space again", number)
    return True


async def _make_spare(store: Store, call: Call, wanted: Spare) -> bool:
    """Whether there was space for it."""
    spares = store.committer.placer.spares
    small = next((one for one in spares if one.number == wanted.number), None)
    if small is not None:  # Nobody may take it while it grows.
        spares.remove(small)
    try:
        spares.append(await call(store.make_spare, wanted))
    except StoreFull:
        if small is not None:
            spares.append(small)
        return False
    return True
