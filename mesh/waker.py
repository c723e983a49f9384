"""Wakes tasks from the pure state machines, which get a `wake` to call.

A trio.Event can be set only once and costs an allocation per wait; these classes park a task directly.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import trio
from trio.lowlevel import Abort, ParkingLot, Task, current_task, reschedule, wait_task_rescheduled


class Waker:
    """Wakes one waiting task. A `wake` before the `wait` is remembered."""

    __slots__ = ("_task", "_wake_pending")

    def __init__(self) -> None:
        self._task: Task | None = None
        self._wake_pending = False

    def wake(self) -> None:
        task = self._task
        if task is None:
            self._wake_pending = True
        else:
            # Before `_task` is cleared: in a thread that is not trio's this raises, and nothing may change.
            reschedule(task)
            self._task = None

    def wait(self) -> Awaitable[object]:
        """Wait for a `wake` that no `wait` has seen yet. Must be awaited at once.

        Raises RuntimeError if another task waits already, for example two that read one subscription.
        Not a coroutine around trio's, for speed: there is one such wait per request at each end.
        """
        if self._wake_pending:
            self._wake_pending = False
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105 (awaited by the caller)
        if self._task is not None:
            raise RuntimeError(
                "two tasks wait at once, perhaps for one subscription: give each task its own"
            )
        self._task = current_task()
        return wait_task_rescheduled(self._abort)  # noqa: ASYNC105

    def _abort(self, _raise_cancel: Any) -> Abort:
        # The cancelled task will run anyway: a `wake` before it does must not reschedule it again.
        self._task = None
        return Abort.SUCCEEDED


class Bell:
    """Wakes all waiting tasks; each then checks its condition again."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot = ParkingLot()

    def wake(self) -> None:
        # Mostly no task waits, and `unpark_all` takes ten times as long to find that.
        if self._lot:
            self._lot.unpark_all()

    async def wait(self) -> None:
        await self._lot.park()
