"""The member's side of requests and broadcasts: admission, queue, deadline, cancellation.

    offered ──room──> RUNNING ──handler ends──> reply, error
       │  └─concurrency reached──> QUEUED ──a slot──> RUNNING
       │                             └─deadline──> ERROR expired, never started
       ├─two more than concurrency, and the caller has other members to try: BUSY (soft)
       └─queue full, or the caller does not take its replies: BUSY (hard)

BUSY is answered before the handler has started, so it is always safe to ask another member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import RemoteProtocolError, TooLarge
from ..names import DEFAULT_ENDPOINT
from .frame import Kind
from .link import Link
from .outbox import REQUESTS
from .request import EXPIRED, MAY_BE_BUSY, REPLY_PREFIX, pack_busy
from .values import clip, encode_values

SOFT_MARGIN = 2
"""Requests beyond `concurrency` that are still taken although the caller could ask another member."""
RETRY_MS_MAX = 60_000
LEAVING_LOAD = 1_000_000_000


@dataclass(slots=True, eq=False)
class Job:
    """One call of a handler. `reply` is False for a broadcast."""

    link: Link
    ident: int
    endpoint: str
    payload: bytes
    deadline_s: float | None
    reply: bool = True
    started_s: float = 0.0
    cancelled: bool = False
    cancel: Callable[[], None] | None = None
    """Set by the shell while the handler runs."""

    @property
    def caller(self) -> str:
        """The cluster whose key the caller holds."""
        return self.link.cluster

    @property
    def node(self) -> bytes:
        return self.link.peer


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What the dispatcher must know of a handler. `allow`: clusters that may call it; None: all."""

    allow: frozenset[str] | None = None
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """Plain counters of one service of this node.

    `expired`: the deadline passed, in the queue or in the handler; `cancelled`: the caller gave up.
    """

    cluster: str
    running: int
    queued: int
    served: int
    failed: int
    busy: int
    expired: int
    cancelled: int
    broadcasts_dropped: int


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Decides when handlers run; calls `start` with each job that may run now."""

    cluster: str
    requests: dict[str, Endpoint]
    broadcasts: dict[str, Endpoint]
    concurrency: int
    queue_max: int
    queue_bytes_max: int
    start: Callable[[Job], None]
    request_flush: Callable[[Link], None]
    draining: bool = False
    running: int = 0
    _queue: deque[Job] = field(default_factory=deque)
    _queue_bytes: int = 0
    _jobs: dict[tuple[Link, int], Job] = field(default_factory=dict)
    _service_s: float = 0.001
    """Moving average of the time that handlers took."""
    _started_s: float = 0.0
    """When the last handler started."""
    served: int = 0
    failed: int = 0
    busy: int = 0
    expired: int = 0
    cancelled: int = 0
    broadcasts_dropped: int = 0

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return self.running + len(self._queue)

    @property
    def reported_load(self) -> int:
        """The load as callers get it, to choose by: a node that leaves takes no requests, however low its load."""
        return LEAVING_LOAD if self.draining else self.load

    def offer(self, job: Job, flags: int, now_s: float) -> None:
        """Admit or refuse a request that has arrived. Raises RemoteProtocolError if one with its id is under way."""
        if (job.link, job.ident) in self._jobs:  # Else the first could not be cancelled any more.
            raise RemoteProtocolError(f"request {job.ident} received twice")
        endpoint = self.requests.get(job.endpoint)
        if not job.link.outbox.has_room(REQUESTS, 0):  # First, because an ERROR needs room as well.
            self._send_busy(job, now_s, "outbox_bytes", job.link.outbox.limit_bytes)
        elif endpoint is None:
            self._send_error(job, "no_such_endpoint", self._describe_missing(job.endpoint))
        elif endpoint.allow is not None and job.caller not in endpoint.allow:
            target = self.cluster if job.endpoint == DEFAULT_ENDPOINT else repr(job.endpoint)
            self._send_error(job, "not_allowed", f"{job.caller} may not call {target}")
        elif self.draining:
            self._send_busy(job, now_s)
        elif full := self._reached_limit(job):
            self._send_busy(job, now_s, *full)
        elif flags & MAY_BE_BUSY and self.load >= self.concurrency + SOFT_MARGIN:
            self._send_busy(job, now_s, "concurrency", self.concurrency, hard=False)
        else:
            self._jobs[job.link, job.ident] = job
            self._admit(job, now_s)

    def _describe_missing(self, endpoint: str) -> str:
        if endpoint != DEFAULT_ENDPOINT:
            return f"{self.cluster} has no endpoint {endpoint!r}"
        # A caller who gave no endpoint has never seen the default one's name.
        return (
            f"{self.cluster} has no plain `@service.request`, only named ones, if any: "
            f"ask for {self.cluster}/NAME"
        )

    def offer_broadcast(self, job: Job, now_s: float) -> None:
        """Admit a broadcast that has arrived; drop and count it if there is no room, or it is not allowed."""
        endpoint = self.broadcasts.get(job.endpoint)
        allowed = endpoint is not None and (endpoint.allow is None or job.caller in endpoint.allow)
        if not allowed or self.draining or self._reached_limit(job):
            self.broadcasts_dropped += 1
            return
        self._admit(job, now_s)

    def _reached_limit(self, job: Job) -> tuple[str, int] | None:
        """Return the setting that leaves no room for the job, and its limit; None if there is room."""
        if self.running < self.concurrency:
            return None
        if len(self._queue) >= self.queue_max:
            return "queue_requests", self.queue_max
        if self._queue_bytes + len(job.payload) > self.queue_bytes_max:
            return "queue_bytes", self.queue_bytes_max
        return None

    def _admit(self, job: Job, now_s: float) -> None:
        if self.running < self.concurrency:
            self._run(job, now_s)
        else:
            self._queue.append(job)
            self._queue_bytes += len(job.payload)

    def _run(self, job: Job, now_s: float) -> None:
        self.running += 1
        self._started_s = job.started_s = now_s
        self.start(job)

    def replied(self, job: Job, payload: bytes, now_s: float) -> None:
        """Send the reply that the handler has returned."""
        limit = job.link.payload_bytes_max
        if len(payload) > limit:
            error = TooLarge("reply", len(payload), limit, TooLarge.LESSER, TooLarge.TUNNEL)
            self.raised(job, "failed", str(error), now_s)
            return
        self.served += 1
        self._answer(job, Kind.REPLY, payload, now_s)
        self.finished(job, now_s)

    def raised(self, job: Job, code: str, message: str, now_s: float) -> None:
        """Send the error that the handler has raised."""
        self.failed += 1
        self._answer(job, Kind.ERROR, encode_values(clip(code), clip(message)), now_s)
        self.finished(job, now_s)

    def handler_cancelled(self, job: Job, now_s: float) -> None:
        """Note that the handler was cancelled, because its deadline passed or its caller gave up."""
        self.expired += not job.cancelled
        self.finished(job, now_s)

    def finished(self, job: Job, now_s: float) -> None:
        """Note that the handler has ended, with or without an answer; run those that wait for its slot."""
        self.running -= 1
        service_s = now_s - job.started_s
        self._service_s += 0.1 * (service_s - self._service_s)
        if self._jobs.get((job.link, job.ident)) is job:  # A broadcast may have the same id.
            del self._jobs[job.link, job.ident]
        while self._queue and self.running < self.concurrency:
            queued_job = self._queue.popleft()
            self._queue_bytes -= len(queued_job.payload)
            if queued_job.deadline_s is not None and now_s >= queued_job.deadline_s:
                self.expired += 1  # A request: broadcasts have no deadline.
                del self._jobs[queued_job.link, queued_job.ident]
                self._send_error(
                    queued_job, EXPIRED, "the deadline passed while the request was queued"
                )
                continue
            self._run(queued_job, now_s)

    def cancel_request(self, link: Link, ident: int) -> bool:
        """Cancel a request. Return False if it is not here, because it has ended or is yet to arrive."""
        job = self._jobs.pop((link, ident), None)
        if job is None:
            return False
        self._cancel(job)
        return True

    def lost(self, link: Link) -> None:
        """Cancel all requests of a link that has ended."""
        for key in [key for key in self._jobs if key[0] is link]:
            self._cancel(self._jobs.pop(key))

    def _cancel(self, job: Job) -> None:
        self.cancelled += 1
        job.cancelled = True
        if job in self._queue:  # It must not take up room in the queue.
            self._queue.remove(job)
            self._queue_bytes -= len(job.payload)
        if job.cancel is not None:
            job.cancel()

    def _answer(self, job: Job, kind: int, body: bytes, now_s: float) -> None:
        if job.cancelled or not job.reply or not job.link.up:
            return
        service_us = min(int((now_s - job.started_s) * 1e6), 0xFFFFFFFF) if job.started_s else 0
        prefix = REPLY_PREFIX.pack(service_us, min(max(self.reported_load - 1, 0), 0xFFFF))
        job.link.outbox.push_unordered(kind, job.ident, body, prefix=prefix)
        self.request_flush(job.link)

    def _send_error(self, job: Job, code: str, message: str) -> None:
        self.failed += 1
        self._answer(job, Kind.ERROR, encode_values(code, message), 0.0)

    def _send_busy(
        self, job: Job, now_s: float, setting: str = "", limit: int = 0, *, hard: bool = True
    ) -> None:
        self.busy += 1
        turns = max(1.0, self.load / self.concurrency)
        # With all slots taken, no handler has ended since the last one started, so each takes at least that
        # long. `_service_s` does not tell, if none has ended before.
        since_s = now_s - self._started_s if self.running >= self.concurrency else 0.0
        service_s = max(self._service_s, since_s)
        retry_after_ms = min(RETRY_MS_MAX, max(1, int(1000 * service_s * turns)))
        body = pack_busy(
            self.reported_load, retry_after_ms, hard=hard, setting=setting, limit=limit
        )
        job.link.send_control(Kind.BUSY, job.ident, body)
        self.request_flush(job.link)

    def statistics(self) -> ServiceStatistics:
        return ServiceStatistics(
            self.cluster, self.running, len(self._queue), self.served, self.failed, self.busy,
            self.expired, self.cancelled, self.broadcasts_dropped,
        )  # fmt: skip


def refuse_unserved(link: Link, ident: int, cluster: str) -> None:
    """Answer a request for a cluster of which this node serves nothing, and so has no dispatcher."""
    if link.outbox.has_room(REQUESTS, 0):
        body = encode_values("no_such_endpoint", f"this member serves no {cluster!r}")
        prefix = bytes(REPLY_PREFIX.size)
        link.outbox.push_unordered(Kind.ERROR, ident, body, prefix=prefix)
    else:  # The caller does not take its replies, so none is added.
        most = link.outbox.limit_bytes
        body = pack_busy(0, RETRY_MS_MAX, hard=True, setting="outbox_bytes", limit=most)
        link.send_control(Kind.BUSY, ident, body)
