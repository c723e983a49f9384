"""Polling for a moment before the loop sleeps, where an answer is due from another process or a disk.

An idle processor is put to sleep after some 50 us. A broker's confirm takes longer, so whoever waits for it
has to be woken, a sixth of the time from publish to confirm; and so has the broker, when a publisher that
waits for each confirm sends its next message. So while somebody says that an answer is due, the loop polls its
sockets, and the end of a commit, up to a millisecond.

It does so only when it has nothing else to do, lets other threads and processes in every few microseconds,
stops where they take long, and rests where it was in vain. What is not watched (other sockets of the program,
its other threads) is noticed up to a millisecond later.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import trio
from trio.lowlevel import RunVar

from .yielding import SCHED_YIELD

LIMIT_S = 1e-3
"""No longer than that at a time. What takes longer on average is not worth it."""
ANSWERED_S = 2e-4
"""So long after an answer, for what whoever got it sends next: it comes at once or not soon."""
LOOKS = 4
"""At the sockets before the processor is yielded: some us."""
TURN_S = 1e-4
"""So many looks, and a yield, take a tenth of that. If not, somebody else needs the processor."""
RESTS_MAX = 255
"""So many waits after one that was in vain are left alone, at most: 1, 3, 7 ... if it stays so."""


class Habit:
    """Looking for one kind of thing: how long, and how seldom where it was in vain."""

    __slots__ = ("_rests", "_vain", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._vain = self._rests = 0

    def rests(self) -> bool:
        """Whether this time it is left alone."""
        if self._rests:
            self._rests -= 1
            return True
        return False

    def came(self) -> None:
        self._vain = 0

    def in_vain(self) -> None:
        self._rests = self._vain = min(2 * self._vain + 1, RESTS_MAX)


class Spinner(trio.abc.Instrument):
    """Of one trio run: see `spinner_of_this_run`."""

    def __init__(
        self, sockets: select.poll, sched_yield: Callable[[], object] = SCHED_YIELD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._sockets = sockets
        self._sched_yield, self._clock = sched_yield, clock
        self._expecting, self._answered = 0, False
        self._answers, self._questions = Habit(LIMIT_S), Habit(ANSWERED_S)

    def attach(self) -> None:
        """Have the loop ask it from now on: whoever is going to expect something says so first."""
        trio.lowlevel.add_instrument(self)  # Added once, however often.

    def watch(self, fd: int) -> None:
        self._sockets.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._sockets.unregister(fd)

    def __enter__(self) -> None:
        """In the block something is waited for that ought to come in a moment, at what is watched."""
        self._expecting += 1

    def __exit__(self, *_: object) -> None:
        self._expecting -= 1

    def answered(self) -> None:
        """An answer has left: when the loop has nothing to do, the next question ought to come in a moment."""
        self._answered = True

    def before_io_wait(self, timeout: float) -> None:
        """The loop has nothing to do for so many seconds, unless something comes."""
        if timeout <= 0 or not (self._expecting or self._answered):
            return
        habit = self._answers if self._expecting else self._questions
        self._answered = False
        if not habit.rests():
            self._spin(habit, timeout)

    def _spin(self, habit: Habit, timeout_s: float) -> None:
        """Until something has come, or as long as may be."""
        clock, poll = self._clock, self._sockets.poll
        turned_s = clock()
        end_s = turned_s + min(habit.limit_s, timeout_s)
        while True:
            for _ in range(LOOKS):
                if poll(0):
                    habit.came()
                    return
            self._sched_yield()
            now_s = clock()
            if now_s >= end_s:
                if timeout_s >= habit.limit_s:
                    habit.in_vain()
                return
            if now_s - turned_s > TURN_S:
                return
            turned_s = now_s


_OF_RUN: RunVar[Spinner] = RunVar("spinner")


def spinner_of_this_run() -> Spinner:
    """The one of all nodes in this trio run: it is their loop."""
    try:
        return _OF_RUN.get()
    except LookupError:
        spinner = Spinner(select.poll())
        _OF_RUN.set(spinner)
        return spinner
