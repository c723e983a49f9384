"""Tasks that run handlers. They are kept and reused, since starting a task costs more than a whole request.

    start ──> ready ──> a worker: job, job, job ──> idle
                            └─ a handler has to wait ──> two more workers go on with what is ready

Most handlers never wait, and waking a task for each would cost as much as the handler. If all of them wait,
the number of workers doubles with each turn of the scheduler.
"""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import trio
from trio.lowlevel import enable_ki_protection

from .errors import REFUSALS, ServiceError
from .failure_log import FailureLog
from .protocol.dispatch import Dispatcher, Job
from .service import Handler, Request
from .waker import Waker

IDLE_MAX = 1024
"""Idle tasks to keep, 4 KB each. Starting one costs 10 us, so this is more than usually run at a time."""
E = TypeVar("E", bound=BaseException)


class Worker:
    """One task that runs jobs. `waited`: the job's handler has waited, so a deadline may have cancelled the scope."""

    __slots__ = ("_wake", "job", "waited", "waker")

    def __init__(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self.job: Job | None = None
        self.waited = False
        self.waker = Waker()

    def on_wait(self) -> None:
        self.waited = True
        self._wake(2)  # The handlers of the next jobs may have to wait, too.


class Workers:
    """Runs the jobs of one service. The dispatcher limits their number."""

    def __init__(
        self, nursery: trio.Nursery, requests: dict[str, Handler], broadcasts: dict[str, Handler],
        *, answered: Callable[..., None],
    ) -> None:  # fmt: skip
        self._nursery = nursery
        self._requests, self._broadcasts, self._answered = requests, broadcasts, answered
        self._ready: deque[Job] = deque()
        self._starting = 0
        self._idle: list[Worker] = []
        self._clock = trio.lowlevel.current_clock().current_time
        self._failures = FailureLog()
        self.dispatcher: Dispatcher
        """Set once, right after the dispatcher was made with `start`."""

    def start(self, job: Job) -> None:
        self._ready.append(job)
        if not self._starting:
            self._wake(1)

    def _wake(self, count: int) -> None:
        """Wake or start `count` workers, but no more than there are ready jobs without one."""
        for _ in range(min(count, len(self._ready) - self._starting)):
            self._starting += 1
            if self._idle:
                self._idle.pop().waker.wake()
            else:
                self._nursery.start_soon(self._work, Worker(self._wake))

    @enable_ki_protection
    async def _work(self, worker: Worker) -> None:
        """Run jobs until one is cancelled, or enough tasks are idle.

        All jobs share one cancel scope: making, entering and leaving one costs several times as much as changing
        its deadline twice, and more than a small handler.
        """
        with trio.CancelScope() as scope:
            while await self._run_ready(worker, scope) and len(self._idle) < IDLE_MAX:
                self._idle.append(worker)
                await worker.waker.wait()
        if scope.cancelled_caught and worker.job is not None:
            self._end(worker.job, None, None, cut_short=True)

    async def _run_ready(self, worker: Worker, scope: trio.CancelScope) -> bool:
        """Run the jobs that are ready now. Return False if the scope may have been cancelled."""
        self._starting -= 1
        # Jobs that become ready meanwhile wait for another turn.
        scope_usable, remaining = True, len(self._ready)
        while scope_usable and remaining and self._ready:
            worker.job = self._ready.popleft()
            remaining -= 1
            scope_usable = await self._run(worker, scope)
        if self._ready and not self._starting:
            self._wake(1)
        if scope_usable:
            scope.deadline = math.inf
        return scope_usable

    async def _run(self, worker: Worker, scope: trio.CancelScope) -> bool:
        """Run the worker's job. Return False if its scope may have been cancelled, and so cannot be used again."""
        job = worker.job
        assert job is not None
        if job.cancelled:  # Cancelled before it began.
            worker.job = None
            self._end(job, None, None, cut_short=True)
            return True
        handlers = self._requests if job.reply else self._broadcasts
        request = Request(job.payload, job.endpoint, job.caller, job.node, job.deadline_s)
        reply: object = None
        refusal: ServiceError | None = None
        job.cancel = scope.cancel
        deadline_s = math.inf if job.deadline_s is None else job.deadline_s
        if scope.deadline != deadline_s:  # Requests that came together mostly have the same one.
            scope.deadline = deadline_s
        worker.waited = False
        try:  # Cancelled passes through; other exceptions beside it in a group are logged.
            reply = await _await_observed(handlers[job.endpoint](request), worker.on_wait)
        except* ServiceError as group:
            refusal = _caller_refusal(_first_error(group))
        except* Exception as group:
            error = _first_error(group)
            refusal = ServiceError("failed", _describe(error))
            self._failures.log(f"handler of {job.endpoint!r}", error)
        worker.job = None
        now_s = self._end(job, reply, refusal)
        return not job.cancelled and (not worker.waited or now_s < deadline_s)

    def _end(
        self, job: Job, reply: object, refusal: ServiceError | None, *, cut_short: bool = False
    ) -> float:
        """Report the end of a handler to the dispatcher, and return the time."""
        job.cancel = None
        dispatcher, now_s = self.dispatcher, self._clock()
        if cut_short:
            dispatcher.handler_cancelled(job, now_s)
        elif refusal is not None:
            dispatcher.raised(job, refusal.code, refusal.message, now_s)
        elif not job.reply:
            dispatcher.finished(job, now_s)
        elif isinstance(reply, bytes):
            dispatcher.replied(job, reply, now_s)
        else:
            kind = type(reply).__name__
            dispatcher.raised(job, "failed", f"handler returned {kind}, not bytes", now_s)
        self._answered(alone=not dispatcher.running)
        return now_s


@types.coroutine
def _await_observed(
    handling: Awaitable[object], on_wait: Callable[[], None]
) -> Generator[Any, Any, object]:
    """Await `handling`, and call `on_wait` when it first has to wait for something."""
    steps = handling.__await__()
    try:
        trap = steps.send(None)
        on_wait()
        while True:
            try:
                answer = yield trap
            except BaseException as error:
                trap = steps.throw(error)
            else:
                trap = steps.send(answer)
    except StopIteration as end:
        return end.value


def _first_error(group: BaseExceptionGroup[E]) -> E:
    """Return the first exception in a group, however deeply nested."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error  # type: ignore[return-value]


def _caller_refusal(error: ServiceError) -> ServiceError:
    """Return the error for the caller. If the handler passes on a refusal by another member, the code becomes `failed`:
    the caller would take the refusal's own code to mean that this handler has not run.
    """
    return ServiceError("failed", str(error)) if error.code in REFUSALS else error


def _describe(error: Exception) -> str:
    """Describe a failure to the caller; exceptions whose text fails show only their class."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
