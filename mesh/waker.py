"""Waking tasks from outside a task: what the pure machines are given as `wake`.

A trio.Event is used up after one set and costs an allocation per wait; these park a task directly.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import trio
from trio.lowlevel import Abort, ParkingLot, Task, current_task, reschedule, wait_task_rescheduled


class Waker:
    """One task at most waits; `wake` may come before, and is remembered."""

    __slots__ = ("_task", "_woken")

    def __init__(self) -> None:
        self._task: Task | None = None
        self._woken = False

    def wake(self) -> None:
        task = self._task
        if task is None:
            self._woken = True
        else:
            # First: from a thread that is not trio's it raises, and changes nothing.
            reschedule(task)
            self._task = None

    def wait(self) -> Awaitable[object]:
        """Returns after a `wake` that no `wait` has seen yet. To be awaited at once.

        Raises RuntimeError: another task waits, of those that read one subscription, for instance.
        No coroutine of its own around trio's: there is one such wait per request at each end.
        """
        if self._woken:
            self._woken = False
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105 (awaited by the caller)
        if self._task is not None:
            raise RuntimeError(
                "two tasks wait at once, for one subscription perhaps: give each its own"
            )
        self._task = current_task()
        return wait_task_rescheduled(self._abort)  # noqa: ASYNC105

    def _abort(self, _raise_cancel: Any) -> Abort:
        self._task = None  # It is on its way already: a `wake` before it runs must not hurry it.
        return Abort.SUCCEEDED


class Bell:
    """Any number of tasks wait; `wake` wakes them all, and all look again."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot = ParkingLot()

    def wake(self) -> None:
        if self._lot:  # Mostly nobody waits, and finding that out there takes ten times as long.
            self._lot.unpark_all()

    async def wait(self) -> None:
        await self._lot.park()
