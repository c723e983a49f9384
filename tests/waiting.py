"""The only ways in which tests wait: for a condition, or on the virtual clock.

A fixed wait is too short on a loaded machine and too long on every other. test_tidy.py keeps all
tests to these functions; what cannot keep to them stands there, with its reason.
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
"""From look to look. On the virtual clock time costs nothing and looks do: of some lives they were half."""


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], patience_s: float = PATIENCE_S
) -> None:
    """Wait for something that comes by itself; a test that waits too long fails.

    `condition` may be async, and then may also do what is to be done before each look.
    """
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(patience_s):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await trio.sleep(VIRTUAL_LOOK_S if virtual else LOOK_S)


def until_in_thread(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """The same where there is no trio."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {patience_s} s"
        time.sleep(LOOK_S)


async def virtual_sleep(seconds: float) -> None:
    """Let time pass that costs nothing and is exact. On a real clock it is an error."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock), "on a real clock, wait for a condition"
    await trio.sleep(seconds)
