"""Polls for a moment before the loop sleeps, when an answer is due from another process or a disk.

An idle processor is put to sleep after some 50 us. A broker's confirm takes longer, so the processor of the
waiting client has to be woken, which takes a sixth of the time from publish to confirm; so does the broker's, when
a publisher that waits for each confirm sends its next message. So while some task expects an answer, the loop
polls its sockets, and the end of a commit, for up to a millisecond.

It polls only when it has nothing else to do, lets other threads and processes run every few microseconds, stops
if they take long, and pauses after polling in vain. Events that are not watched (other sockets of the program,
its other threads) are noticed up to a millisecond later.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import trio
from trio.lowlevel import RunVar

from .yielding import SCHED_YIELD

LIMIT_S = 1e-3
"""Longest polling at a time. Polling is not worth its cost for answers that take longer on average."""
ANSWERED_S = 2e-4
"""Longest polling for the next question after an answer was sent: it comes at once or not soon."""
LOOKS = 4
"""Looks at the sockets between two yields of the processor; they take some us."""
TURN_S = 1e-4
"""LOOKS looks and a yield normally take a tenth of this. If they take longer, others need the processor: stop."""
RESTS_MAX = 255
"""After polling in vain the next 1, 3, 7 ... waits are not polled, up to this many."""


class Habit:
    """Polling for one kind of event: for how long at most, and how often to pause after polling in vain."""

    __slots__ = ("_rests", "_vain", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._vain = self._rests = 0

    def rests(self) -> bool:
        """Return whether to skip polling this time."""
        if self._rests:
            self._rests -= 1
            return True
        return False

    def came(self) -> None:
        self._vain = 0

    def in_vain(self) -> None:
        self._rests = self._vain = min(2 * self._vain + 1, RESTS_MAX)


class Spinner(trio.abc.Instrument):
    """Polls for one trio run; use `spinner_of_this_run`."""

    def __init__(
        self, sockets: select.poll, sched_yield: Callable[[], object] = SCHED_YIELD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._sockets = sockets
        self._sched_yield, self._clock = sched_yield, clock
        self._expecting, self._answered = 0, False
        self._answers, self._questions = Habit(LIMIT_S), Habit(ANSWERED_S)

    def attach(self) -> None:
        """Make the loop call this spinner from now on. Call it before anything is expected; again is harmless."""
        trio.lowlevel.add_instrument(self)  # trio adds an instrument only once.

    def watch(self, fd: int) -> None:
        self._sockets.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._sockets.unregister(fd)

    def __enter__(self) -> None:
        """In the block an answer is expected soon, at a watched descriptor."""
        self._expecting += 1

    def __exit__(self, *_: object) -> None:
        self._expecting -= 1

    def answered(self) -> None:
        """An answer was sent: poll for the next question when the loop has nothing to do."""
        self._answered = True

    def before_io_wait(self, timeout: float) -> None:
        """trio calls this when it has nothing to do for `timeout` seconds unless something comes."""
        if timeout <= 0 or not (self._expecting or self._answered):
            return
        habit = self._answers if self._expecting else self._questions
        self._answered = False
        if not habit.rests():
            self._spin(habit, timeout)

    def _spin(self, habit: Habit, timeout_s: float) -> None:
        """Poll until something has come, or for the longest time allowed."""
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
    """Return the spinner of this trio run, which all its nodes share, as they share the loop."""
    try:
        return _OF_RUN.get()
    except LookupError:
        spinner = Spinner(select.poll())
        _OF_RUN.set(spinner)
        return spinner
