"""The garbage collector, where very much waits or comes to stay.

A full collection looks at everything there is, in one go: with 100,000 queues that are bound that is 550 to
750 ms, in which nothing is confirmed. One comes whenever there is a quarter more: in an import of those
twelve, of up to 350 ms, and four at a start. What is declared is no garbage, and when it is deleted no
collection has to find it. Left out of them, the longest turn of such an import is 49 ms instead of 358.

Tens of thousands of single messages that wait for the disk are a quarter more again and again, and no
garbage either: full collections were a third of what a broker took for a message (33 us, 22 without).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NEVER = 1 << 30
RARELY = 100
"""Collections of what is less young between two full ones: 700,000 objects more, 70 MB."""
MANY = 10_000
"""Entries that are worth it. Whatever else is there stays with them for good, should it become garbage that
only a collection finds: of each connection about 100 KB. So it does not happen again and again."""

Stays = Callable[[int], object]
"""So many entries have come to stay."""


class Collector:
    """
    Args:
        own_process: all there is in this process is the broker's. Else nothing happens: it is for the
            application to say what its collector does.
    """

    def __init__(self, *, own_process: bool = False) -> None:
        self._own = own_process
        self._growing = 0
        self._before = gc.get_threshold()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Inside full collections are rare."""
        if not self._own:
            yield
            return
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], RARELY)
        try:
            yield
        finally:
            gc.set_threshold(*before)

    @contextmanager
    def growing(self) -> Iterator[Stays]:
        """Inside there are no full collections, only those of what is young; what has come to stay is left
        out of all later ones."""
        if not self._own:
            yield _nothing
            return
        if not self._growing:
            self._before = gc.get_threshold()
            gc.set_threshold(*self._before[:2], NEVER)
        self._growing += 1
        try:
            yield _stay
        finally:
            self._growing -= 1
            if not self._growing:
                gc.set_threshold(*self._before)


def _nothing(_entries: int) -> None:
    pass


def _stay(entries: int) -> None:
    if entries >= MANY:
        gc.freeze()
