"""Makes the segment ahead and the spares while others write, and tries again for as long as there is no space."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mesh.waker import Waker

from ..errors import StoreFull
from .disk import SCARCE
from .spares import NEW, Spare
from .store import Store

logger = logging.getLogger("durable.log")
Call = Callable[..., Awaitable[Any]]
"""Calls a method of the store in a worker thread."""


async def make_ahead(
    store: Store, call: Call, wanted: Waker, *, wait_for_space: Callable[[], Awaitable[object]],
    notify: Callable[[], object], fail: Callable[[str, Exception], object],
) -> None:  # fmt: skip
    """Keep spares and one segment ahead, until the log has stopped. Spares come first: once there is a segment,
    publishes use up the space that is left.

    Args:
        wanted: woken when there may be something to make.
        wait_for_space: returns when there may be space again.
        notify: called after each attempt.
        fail: called instead if the disk has failed.
    """
    committer, placer = store.committer, store.committer.placer
    while not committer.stopped:
        try:
            await _make_spares(store, call, notify)
            number = None if committer.stopped else placer.wanted_segment()
            made = number is not None and await _make_segment(store, call, number)
        except Exception as error:
            fail("creating a segment failed", error)
            return
        if number is None:
            await wanted.wait()
        else:
            notify()
            if not made:
                await wait_for_space()


async def _make_segment(store: Store, call: Call, number: int) -> bool:
    """Make the segment ahead. Return whether there was space for it."""
    placer, full = store.committer.placer, store.committer.full
    try:
        if placer.carrier_useless:
            await call(store.use_carrier, number)
            placer.spares.carrier = None
        else:
            await call(store.make_segment, number, placer.carrier_missing)
    except StoreFull as error:
        placer.segment_refused(error.free_bytes)
        if not full:
            logger.warning("segment %d cannot be created: %s", number, error)
        return False
    placer.segment_made()
    if full:
        logger.warning("segment %d created: there is space again", number)
    return True


async def _make_spares(store: Store, call: Call, notify: Callable[[], object]) -> None:
    """Make those spares for which there is space."""
    committer = store.committer
    for spare in committer.placer.wanted_spares():
        if committer.stopped:
            break
        await _make_spare(store, call, spare)
        notify()


async def _make_spare(store: Store, call: Call, wanted: Spare) -> None:
    """Make a spare if there is space and a descriptor for it. If not, the log goes on without it."""
    spares = store.committer.placer.spares
    small = next((one for one in spares.small if one.number == wanted.number), None)
    if small is None and not (wanted.is_carrier or wanted.number == NEW):
        return  # It became a segment in the meantime.
    if small is not None:  # It must not be used while it grows.
        spares.withdraw(small)
    made = small
    try:
        made = await call(store.make_spare, wanted)
    except StoreFull:
        pass
    except OSError as error:
        if error.errno not in SCARCE:
            raise
    if made is not None:
        spares.add(made)
