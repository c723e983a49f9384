"""When each message is due: from its original time, speed and rate, with long pauses cut.

    original   |o o   o                    o o|        pauses longer than the limit are cut,
    due        |o o  o    o o|  at speed 2             never the order: what is due never goes back

Times are us since 1970 in arrays; whose clock they are told by is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..histogram import Histogram

Times = npt.NDArray[np.int64]


KEPT_US = 20_000
"""With a rate alone, being so late is made up for: no clock wakes anybody on time, and what is due
every 10 us leaves together."""


NEVER_US = 1 << 60
"""In 36,000 years: what would be due later is due then, lest no number can tell it."""


class Schedule(NamedTuple):
    """The same for all tasks of a replay, so that they keep in step without talking."""

    start_us: int
    """When `origin_us` is due."""
    origin_us: int
    speed: float
    """How many times faster than it came; 0: original times do not count."""
    rate: float
    """Messages a second at most; 0: any."""
    pauses: Sequence[tuple[int, int]] = ()
    """(original time, what is left out of all pauses that end by then), sorted."""


class Pacer:
    """Of one task; fed with its messages in order."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._latest = schedule.start_us
        self._ends = np.array([at for at, _ in schedule.pauses], np.int64)
        self._less = np.array([0, *(less for _, less in schedule.pauses)], np.int64)
        self._step_us = min(1e6 / schedule.rate, NEVER_US) if schedule.rate else 0.0

    def due(self, times_us: Times, now_us: int) -> Times:
        """When the next messages are due, which came at `times_us`.

        With a rate alone, what should have left before `now_us` moves to now: nothing is made up
        for in a burst.
        """
        schedule = self._schedule
        if not len(times_us):
            return times_us
        if schedule.speed:
            less = self._less[np.searchsorted(self._ends, times_us, "right")]
            with np.errstate(over="ignore"):
                elapsed = (times_us - schedule.origin_us - less) / schedule.speed
            elapsed = np.clip(elapsed, -NEVER_US, NEVER_US)
            due = schedule.start_us + elapsed.astype(np.int64)
        else:
            earliest = max(self._latest, now_us - int(self._step_us))
            due = np.full(len(times_us), earliest, np.int64)
        due[0] = max(int(due[0]), self._latest + int(self._step_us))
        steps = np.arange(len(due)) * self._step_us
        exact = np.maximum.accumulate(due - steps) + steps
        spaced: Times = np.minimum(exact, NEVER_US).astype(np.int64)
        self._latest = int(spaced[-1])
        return spaced

    def lost(self, late_us: int) -> int:
        """By how much all that follows is put off, when the next message is so late: with a rate alone
        by nearly all of it, or a stall would end in a burst."""
        lost_us = 0 if self._schedule.speed else max(0, late_us - KEPT_US)
        self._latest += lost_us
        return lost_us


def cut_pauses(gaps: Iterable[tuple[int, int]], longest_us: int) -> list[tuple[int, int]]:
    """`pauses` of a schedule, from (end of the gap, its length), both us, that are longer."""
    total, found = 0, []
    for end_us, length_us in sorted(gaps):
        if length_us > longest_us:
            total += length_us - longest_us
            found.append((end_us, total))
    return found


LATENESS_BASE = 1.02
"""Percentiles of lateness are 2 % exact."""


class Lateness(Histogram):
    """How late messages were handed over; what is early is not late."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        super().__init__(LATENESS_BASE, counts)
