"""The only ways in which tests wait: for a condition, or on the virtual clock.

A fixed wait is too short on a busy machine and too long on any other. test_tidy.py keeps all tests to these functions
and lists the exceptions with their reasons.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

PATIENCE_S = 20
LOOK_S, VIRTUAL_LOOK_S = 0.005, 0.05
"""Interval between looks. On the virtual clock time costs nothing, but looks do: they took half of some tests."""


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], patience_s: float = PATIENCE_S
) -> None:
    """Wait until `condition` holds. Raises trio.TooSlowError after `patience_s`.

    `condition` may be async; it may then also do something before each look.
    """
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(patience_s):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await trio.sleep(VIRTUAL_LOOK_S if virtual else LOOK_S)


def until_in_thread(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """As `until`, for code outside of trio."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {patience_s} s"
        time.sleep(LOOK_S)


async def virtual_sleep(seconds: float) -> None:
    """Sleep on the virtual clock, where time is exact and costs nothing. Raises AssertionError on a real clock."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock), "on a real clock, wait for a condition"
    await trio.sleep(seconds)
