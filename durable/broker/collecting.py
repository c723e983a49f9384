"""Settings of the garbage collector for processes with very many objects that wait or stay.

A full collection looks at all objects in one go: with 100,000 queues that are bound it takes 550 to 750
ms, in which nothing is confirmed. It comes whenever there are a quarter more objects: twelve times in an
import of those queues, for up to 350 ms each, and four times at a start. But what is declared is not
garbage, and what is deleted is freed without a collection. With declared objects left out of collections,
the longest turn of such an import is 49 ms instead of 358.

Tens of thousands of single messages that wait for the disk are a quarter more again and again, and not
garbage either: full collections were a third of a broker's time per message (33 us with, 22 without).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NEVER_THRESHOLD = 1 << 30
RARE_THRESHOLD = 100
"""Threshold of full collections: as many collections of the second generation between two full ones, which is
700,000 more objects, 70 MB."""
FREEZE_MIN = 10_000
"""Entries for which `gc.freeze` is worth it. It also freezes everything else in the process; what of that
later becomes garbage in cycles is never freed, about 100 KB for each connection. So it must not happen
again and again."""

Freeze = Callable[[int], object]
"""Called with the number of entries that have come to stay."""


class Collector:
    """
    Args:
        own_process: nothing but the broker runs in this process. Otherwise nothing is changed: the collector
            is the application's to set.
    """

    def __init__(self, *, own_process: bool = False) -> None:
        self._own_process = own_process
        self._growing_blocks = 0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Inside this block, full collections are rare."""
        if not self._own_process:
            yield
            return
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], RARE_THRESHOLD)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)

    @contextmanager
    def growing(self) -> Iterator[Freeze]:
        """Inside this block there are no full collections, only those of younger generations. Call the result
        with the number of entries made; if there are many, they are left out of all later collections."""
        if not self._own_process:
            yield _freeze_nothing
            return
        if not self._growing_blocks:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], NEVER_THRESHOLD)
        self._growing_blocks += 1
        try:
            yield _freeze_if_many
        finally:
            self._growing_blocks -= 1
            if not self._growing_blocks:
                gc.set_threshold(*self._thresholds)


def _freeze_nothing(_entries: int) -> None:
    pass


def _freeze_if_many(entries: int) -> None:
    if entries >= FREEZE_MIN:
        gc.freeze()
