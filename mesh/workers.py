"""Tasks that run handlers: kept and reused, for starting a task per request costs more than it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TypeVar

import trio
from trio.lowlevel import enable_ki_protection

from .errors import ServiceError, TooLarge
from .protocol.dispatch import Dispatcher, Job
from .service import Handler, Request
from .waker import Waker

logger = logging.getLogger("mesh")
IDLE_MAX = 1024
"""Tasks kept, 4 KB each. To start one costs 10 us, so more than usually run at a time."""
COMPLAINTS_MAX = 1000
"""Kinds of failure that are logged, per service."""
E = TypeVar("E", bound=BaseException)


class Worker:
    __slots__ = ("job", "waker")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.waker = Waker()


class Workers:
    """Runs the jobs of one service. The dispatcher bounds how many there are."""

    def __init__(
        self, nursery: trio.Nursery, requests: dict[str, Handler], broadcasts: dict[str, Handler],
        *, payload_bytes_max: int, answered: Callable[..., None],
    ) -> None:  # fmt: skip
        self._nursery = nursery
        self._requests, self._broadcasts = requests, broadcasts
        self._payload_bytes_max, self._answered = payload_bytes_max, answered
        self._idle: list[Worker] = []
        self._clock = trio.lowlevel.current_clock().current_time
        self._complained: set[tuple[str, str]] = set()
        self.dispatcher: Dispatcher
        """Set once, right after the dispatcher was made with `start`."""

    def start(self, job: Job) -> None:
        if self._idle:
            worker = self._idle.pop()
            worker.job = job
            worker.waker.wake()
        else:
            worker = Worker()
            worker.job = job
            self._nursery.start_soon(self._work, worker)

    @enable_ki_protection
    async def _work(self, worker: Worker) -> None:
        """Run jobs until one is cancelled, or enough tasks are idle.

        One cancel scope for all of them: to make, enter and leave one costs several times as much as
        to move its deadline there and back, and more than a small handler.
        """
        with trio.CancelScope() as scope:
            while await self._run(worker, scope) and len(self._idle) < IDLE_MAX:
                self._idle.append(worker)
                await worker.waker.wait()
        if scope.cancelled_caught and worker.job is not None:
            self._end(worker.job, None, None, cut_short=True)

    async def _run(self, worker: Worker, scope: trio.CancelScope) -> bool:
        """Run the worker's job. False: its scope may have been cancelled, and is of no more use."""
        job = worker.job
        assert job is not None
        handlers = self._requests if job.reply else self._broadcasts
        request = Request(job.payload, job.endpoint, job.caller, job.node, job.deadline_s)
        reply: object = None
        refusal: ServiceError | None = None
        job.cancel = scope.cancel
        if job.deadline_s is not None:
            scope.deadline = job.deadline_s
        if job.cancelled:
            scope.cancel()
        try:  # What a cancelled handler raises beside Cancelled is logged, the rest goes on.
            reply = await handlers[job.endpoint](request)
        except* ServiceError as group:
            refusal = _first(group)
        except* Exception as group:
            error = _first(group)
            refusal = ServiceError("failed", _told(error))
            self._complain(job, error)
        scope.deadline = math.inf
        worker.job = None
        now_s = self._end(job, reply, refusal)
        return not job.cancelled and (job.deadline_s is None or now_s < job.deadline_s)

    def _end(
        self, job: Job, reply: object, refusal: ServiceError | None, *, cut_short: bool = False
    ) -> float:
        """The handler is out of the way: tell the dispatcher, and return the time."""
        job.cancel = None
        dispatcher, now_s = self.dispatcher, self._clock()
        if cut_short:
            dispatcher.cut_short(job, now_s)
        elif refusal is not None:
            dispatcher.raised(job, refusal.code, refusal.message, now_s)
        elif not job.reply:
            dispatcher.finished(job, now_s)
        else:
            self._reply(job, reply, now_s)
        self._answered(alone=not dispatcher.running)
        return now_s

    def _reply(self, job: Job, reply: object, now_s: float) -> None:
        if not isinstance(reply, bytes):
            kind = type(reply).__name__
            self.dispatcher.raised(job, "failed", f"handler returned {kind}, not bytes", now_s)
        elif len(reply) > self._payload_bytes_max:
            error = TooLarge("reply", len(reply), self._payload_bytes_max)
            self.dispatcher.raised(job, "failed", str(error), now_s)
        else:
            self.dispatcher.replied(job, reply, now_s)

    def _complain(self, job: Job, error: Exception) -> None:
        # Once per endpoint and kind: callers get every one of them, the counters count the rest.
        key = (job.endpoint, type(error).__name__)
        if key not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(key)
            logger.error("handler of %r failed; this is logged once", job.endpoint, exc_info=error)


def _first(group: BaseExceptionGroup[E]) -> E:
    """The first exception in there, however deep."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error  # type: ignore[return-value]


def _told(error: Exception) -> str:
    """What a caller is told of a failure; that the exception cannot say it is none of theirs."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
