"""Waiting for a time at most, in a loop that may be late.

seconds ─┬─ part ─┬─ part ─┬─ ... ─┬─> the scope is cancelled
         └ on time: exactly `seconds`; a loop that is blocked spends one part, however long that takes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from .protocol.timers import NO_TIMER, Timer

PARTS = 8


@contextmanager
def within(
    seconds: float, after: Callable[[float, Callable[[], None]], Timer]
) -> Iterator[trio.CancelScope]:
    """As `trio.move_on_after`, but for what takes other tasks several turns: frames come, then links, then answers.

    Args:
        after: sets a timer of this loop's node, as `Node.after`: what has come is read before one runs.
    """
    scope, timer = trio.CancelScope(), NO_TIMER
    part_s, due_s, left = seconds / PARTS, trio.current_time(), PARTS

    def next_part() -> None:
        nonlocal timer, due_s, left
        if not left:
            scope.cancel()
            return
        now_s = trio.current_time()
        late = now_s - due_s >= part_s
        due_s, left = (now_s if late else due_s) + part_s, left - 1
        timer = after(due_s - now_s, next_part)

    next_part()
    try:
        with scope:
            yield scope
    finally:
        timer.cancel()
