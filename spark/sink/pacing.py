"""When each message is due: computed from its original time, speed and rate, with long pauses cut.

    original   |o o   o                    o o|        pauses longer than the limit are cut,
    due        |o o  o    o o|  at speed 2             but due times never go back, so the order stays

Times are us since 1970 in arrays; the caller decides by whose clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..histogram import Histogram

Times = npt.NDArray[np.int64]


CATCH_UP_US = 20_000
"""With a rate alone, messages up to this late are caught up with, because no timer is exact: messages due every 10 us
are sent several at a time."""


NEVER_US = 1 << 60
"""36,000 years. Later due times are cut to this, so that numbers do not overflow."""


class Schedule(NamedTuple):
    """When messages are due. It is the same for all tasks of a replay, which thus keep in step without talking."""

    start_us: int
    """When `origin_us` is due."""
    origin_us: int
    speed: float
    """How many times faster than originally; 0: original times are ignored."""
    rate: float
    """Upper limit of messages per second; 0: none."""
    pauses: Sequence[tuple[int, int]] = ()
    """(original time, total time cut from all pauses that end by then), sorted."""


class Pacer:
    """Computes due times for one task, whose messages it gets in order."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._latest_due_us = schedule.start_us
        self._pause_ends_us = np.array([at for at, _ in schedule.pauses], np.int64)
        self._cut_us = np.array([0, *(cut_us for _, cut_us in schedule.pauses)], np.int64)
        self._step_us = min(1e6 / schedule.rate, NEVER_US) if schedule.rate else 0.0

    def due(self, times_us: Times, now_us: int) -> Times:
        """Return when the next messages are due; `times_us` are their original times.

        With a rate alone, messages that should have left before `now_us` are due from now on: a delay is
        not made up for in a burst.
        """
        schedule = self._schedule
        if not len(times_us):
            return times_us
        if schedule.speed:
            cut_us = self._cut_us[np.searchsorted(self._pause_ends_us, times_us, "right")]
            with np.errstate(over="ignore"):
                elapsed = (times_us - schedule.origin_us - cut_us) / schedule.speed
            elapsed = np.clip(elapsed, -NEVER_US, NEVER_US)
            due = schedule.start_us + elapsed.astype(np.int64)
        else:
            earliest = max(self._latest_due_us, now_us - int(self._step_us))
            due = np.full(len(times_us), earliest, np.int64)
        due[0] = max(int(due[0]), self._latest_due_us + int(self._step_us))
        steps = np.arange(len(due)) * self._step_us
        exact = np.maximum.accumulate(due - steps) + steps
        spaced: Times = np.minimum(exact, NEVER_US).astype(np.int64)
        self._latest_due_us = int(spaced[-1])
        return spaced

    def postpone(self, late_us: int) -> int:
        """Return by how much everything that follows is put off, given how late the next message is. With a rate
        alone that is nearly all of it, so that a stall does not end in a burst."""
        delay_us = 0 if self._schedule.speed else max(0, late_us - CATCH_UP_US)
        self._latest_due_us += delay_us
        return delay_us


def cut_pauses(gaps: Iterable[tuple[int, int]], longest_us: int) -> list[tuple[int, int]]:
    """Return a schedule's `pauses`, from gaps given as (end, length) in us: those longer than `longest_us`."""
    total, found = 0, []
    for end_us, length_us in sorted(gaps):
        if length_us > longest_us:
            total += length_us - longest_us
            found.append((end_us, total))
    return found


LATENESS_BASE = 1.02
"""Percentiles of lateness are accurate to 2 %."""


class Lateness(Histogram):
    """How late messages were handed over; early ones count as not late."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        super().__init__(LATENESS_BASE, counts)
