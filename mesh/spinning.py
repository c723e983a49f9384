"""Polls for a moment before the loop sleeps, when an answer is due from another process or a disk.

An idle processor is put to sleep after some 50 us. A broker's confirm takes longer, so the processor of the
waiting client has to be woken, which takes a sixth of the time from publish to confirm; so does the broker's, when
a publisher that waits for each confirm sends its next message. So while some task expects an answer, the loop
polls its sockets, and the end of a commit, for up to a millisecond.

It polls only when it has nothing else to do, lets other threads and processes run every few microseconds, stops
if they take long, and pauses after polling without result. Events that are not watched (other sockets of the program,
its other threads) are noticed up to a millisecond later.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import trio
from trio.lowlevel import RunVar

from .yielding import SCHED_YIELD

SPIN_S_MAX = 1e-3
"""Longest polling at a time. Polling is not worth its cost for answers that take longer on average."""
QUESTION_S_MAX = 2e-4
"""Longest polling for the next question after an answer was sent: it comes at once or not soon."""
POLLS_PER_YIELD = 4
"""Polls of the sockets between two yields of the processor; they take some us."""
ROUND_S_MAX = 1e-4
"""So many polls and a yield normally take a tenth of this. If they take longer, others need the processor: stop."""
SKIPS_MAX = 255
"""After polling without result the next 1, 3, 7 ... waits are not polled, up to this many."""


class PollBackoff:
    """Polling for one kind of event: for how long at most, and how often to pause after polling without result."""

    __slots__ = ("_skips", "_skips_left", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._skips = self._skips_left = 0

    def should_skip(self) -> bool:
        """Return whether to skip polling this time."""
        if self._skips_left:
            self._skips_left -= 1
            return True
        return False

    def succeeded(self) -> None:
        self._skips = 0

    def timed_out(self) -> None:
        self._skips_left = self._skips = min(2 * self._skips + 1, SKIPS_MAX)


class Spinner(trio.abc.Instrument):
    """Polls for one trio run; use `spinner_of_this_run`."""

    def __init__(
        self, sockets: select.poll, sched_yield: Callable[[], object] = SCHED_YIELD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._sockets = sockets
        self._sched_yield, self._clock = sched_yield, clock
        self._expecting, self._answered = 0, False
        self._answers, self._questions = PollBackoff(SPIN_S_MAX), PollBackoff(QUESTION_S_MAX)

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
        backoff = self._answers if self._expecting else self._questions
        self._answered = False
        if not backoff.should_skip():
            self._spin(backoff, timeout)

    def _spin(self, backoff: PollBackoff, timeout_s: float) -> None:
        """Poll until something has come, or for the longest time allowed."""
        clock, poll = self._clock, self._sockets.poll
        round_began_s = clock()
        end_s = round_began_s + min(backoff.limit_s, timeout_s)
        while True:
            for _ in range(POLLS_PER_YIELD):
                if poll(0):
                    backoff.succeeded()
                    return
            self._sched_yield()
            now_s = clock()
            if now_s >= end_s:
                if timeout_s >= backoff.limit_s:
                    backoff.timed_out()
                return
            if now_s - round_began_s > ROUND_S_MAX:
                return
            round_began_s = now_s


_SPINNER: RunVar[Spinner] = RunVar("spinner")


def spinner_of_this_run() -> Spinner:
    """Return the spinner of this trio run, which all its nodes share, as they share the loop."""
    try:
        return _SPINNER.get()
    except LookupError:
        spinner = Spinner(select.poll())
        _SPINNER.set(spinner)
        return spinner
