"""The caller's side of request-reply: every request ends once, with a reply or a typed error.

    WAITING ──a member, room──> QUEUED ──in a frame──> SENT ──reply, error──> DONE
       ^ │                        │                      │
       │ └─settle_s: NoMembers    │                      ├─BUSY: not started, another member
       └── link gone ─────────────┴──── idempotent ──────┘ otherwise PeerLost(maybe_executed)

    any ──deadline──> RequestTimeout, CANCEL to the member        any ──caller gives up──> CANCEL

request.py has the encoding of requests, and the state of a single one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from ..errors import (
    LimitReached,
    MeshError,
    NodeClosed,
    NoMembers,
    Overloaded,
    PeerLost,
    RemoteProtocolError,
    RequestError,
    RequestTimeout,
    ServiceError,
    TooLarge,
)
from ..names import short_id
from .balancer import Candidate, Choose
from .expiries import Expiries
from .frame import Buffer, Kind
from .link import Link, Received
from .outbox import REQUESTS
from .request import (
    DONE,
    EXPIRED,
    MAY_BE_BUSY,
    QUEUED,
    REPLY_PREFIX,
    SENT,
    TIME_LEFT_MS_MAX,
    WAITING,
    Pending,
    pack_head,
    read_busy,
)
from .timers import Timers
from .values import decode_values
from .wait_queue import WaitQueue

SOFT_TRIES = 3
"""How many members may answer BUSY although they have room, before one is told to queue the request."""


class RequestTable:
    """All requests of one node."""

    def __init__(
        self, rotation: Callable[[str], list[Candidate]], choose: Choose, timers: Timers,
        rng: Random, *, settle_s: float, requests_max: int, idempotent: Callable[[bytes, str], bool],
        request_flush: Callable[[Link], None], present: Callable[[], Sequence[str]],
    ) -> None:  # fmt: skip
        """
        Args:
            rotation: members of a cluster that can take a request now.
            present: clusters that have members at all, for the error when one has none.
            idempotent: whether a node declares that requests to a target may be executed twice.
            request_flush: called with every link that has something to send now.
        """
        self._rotation, self._choose, self._timers, self._rng = rotation, choose, timers, rng
        self._settle_s, self._requests_max = settle_s, requests_max
        self._idempotent, self._request_flush, self._present = idempotent, request_flush, present
        self._pending: dict[int, Pending] = {}
        self.waiting: dict[str, WaitQueue] = {}
        """Requests that wait for a member, or for room in the outbox to one, by cluster."""
        self._next_id = 0
        self._expiries = Expiries(self._pending, timers, self._expire)
        self.sent = self.replied = self.failed = self.busy = self.retried = self.late = 0

    def __len__(self) -> int:
        return len(self._pending)

    def start(
        self, target: str, payload: bytes, *, now_s: float, deadline_s: float,
        expires_s: float, wake: Callable[[], object], only: Candidate | None = None,
    ) -> Pending:  # fmt: skip
        """Begin a request.

        Args:
            deadline_s: the deadline that the member is told.
            expires_s: when the request ends here with RequestTimeout. Later than `deadline_s` if the
                caller itself gives up at the deadline.
            only: ask this member and no other (gather).

        Raises:
            InvalidName, LimitReached: then nothing was begun.
        """
        if len(self._pending) >= self._requests_max:
            raise LimitReached("requests_max", self._requests_max)
        self._next_id += 1
        pending = Pending(self._next_id, target, payload, now_s, deadline_s, expires_s, wake, only)
        self._pending[pending.ident] = pending
        if expires_s <= now_s:  # If sent, a quick member would execute it, although nobody waits.
            self._expire(pending, now_s)
            return pending
        self._expiries.add(expires_s, pending.ident)
        if only is None and pending.cluster in self.waiting and self._rotation(pending.cluster):
            self._wait(pending)  # Behind others that wait for room already.
        else:
            self._assign(pending, now_s)
        return pending

    def _assign(self, pending: Pending, now_s: float) -> None:
        """Give the request to a member, or let it wait for one."""
        only = pending.only
        if only is None:
            picked = self._pick(pending, now_s)
        elif self._has_room(only.link, len(pending.payload)):
            picked = only, False
        else:
            picked = None
            limit = only.link.outbox.limit_bytes
            self._finish(pending, Overloaded(pending.target, 1, 0.0, "outbox_bytes", limit))
        if picked is not None:
            candidate, soft = picked
            self._enqueue(pending, candidate, soft, now_s)

    def _pick(self, pending: Pending, now_s: float) -> tuple[Candidate, bool] | None:
        """Return a member with room, and whether it may answer BUSY early; None if the request now waits, or has
        ended."""
        candidates, tried = _without_full(pending, self._rotation(pending.cluster)), pending.tried
        if not candidates:
            self._on_no_candidates(pending, now_s)
            return None
        untried = [one for one in candidates if one.node not in tried] if tried else candidates
        # A member may answer BUSY early only while there is another one to ask.
        soft = len(untried) > 1 and len(tried) < SOFT_TRIES
        candidate = self._choose(untried or candidates, self._rng)
        size = len(pending.payload)
        if not candidate.link.outbox.has_room(REQUESTS, size):
            with_room = [one for one in candidates if self._has_room(one.link, size)]
            if not with_room:
                self._wait(pending)
                return None
            candidate = self._choose(with_room, self._rng)
        return candidate, soft

    def _enqueue(self, pending: Pending, candidate: Candidate, soft: bool, now_s: float) -> None:
        link, size = candidate.link, len(pending.payload)
        if size > link.payload_bytes_max:
            limit, source = link.payload_bytes_max, "payload_bytes_max of the other end"
            error: MeshError = TooLarge("payload", size, limit, source, TooLarge.TUNNEL)
            # TooLarge would mean that nothing was sent: it was, to `maybe_executed_by`.
            if pending.maybe_executed_by:
                error = PeerLost(
                    pending.target, short_id(pending.maybe_executed_by), maybe_executed=True
                )
            self._finish(pending, error)
            return
        pending.candidate, pending.state, pending.soft = candidate, QUEUED, soft
        pending.sequence = 0
        if pending.record is not None:
            pending.record.owner = None  # Pieces of it may still leave for the previous member.
        candidate.outstanding += 1
        link.outstanding += 1
        self.sent += 1
        time_left_ms = (pending.deadline_s - now_s) * 1000
        if not 1 <= time_left_ms <= TIME_LEFT_MS_MAX:
            time_left_ms = min(max(time_left_ms, 1), TIME_LEFT_MS_MAX)
        flags = MAY_BE_BUSY if soft else 0
        # Rounded up, so that the member does not end the request before its deadline.
        head = pack_head(pending.cluster, pending.endpoint, math.ceil(time_left_ms), flags)
        pending.record = link.outbox.push_unordered(
            Kind.REQUEST, pending.ident, pending.payload, prefix=head, owner=pending
        )
        self._request_flush(link)

    def _on_no_candidates(self, pending: Pending, now_s: float) -> None:
        if pending.full_nodes:
            self._finish(pending, _overloaded(pending, len(pending.full_nodes)))
        else:  # For settle_s from now, however old it is: a new request would wait as long.
            self._wait(pending)
            pending.settle_timer = self._timers.call_later(
                now_s, self._settle_s, lambda now: self._on_settle_timeout(pending, now)
            )

    def _no_members(self, pending: Pending, now_s: float) -> NoMembers:
        return NoMembers(pending.cluster, now_s - pending.started_s, self._present())

    def _wait(self, pending: Pending) -> None:
        """Let the request wait for a member, or for room in the outbox to one."""
        pending.state, pending.candidate = WAITING, None
        self.waiting.setdefault(pending.cluster, WaitQueue()).add(pending)

    def _on_settle_timeout(self, pending: Pending, now_s: float) -> None:
        """Fail the request if there are still no members. It waits: this timer is cancelled when it no longer does."""
        if not self._rotation(pending.cluster):
            self._finish(pending, self._no_members(pending, now_s))

    def assign_all_waiting(self, now_s: float) -> None:
        """Assign waiting requests for which there is room, because frames have left; first come, first served."""
        for cluster in list(self.waiting):
            self.assign_waiting(cluster, now_s)

    def assign_waiting(self, cluster: str, now_s: float) -> None:
        """Assign waiting requests of a cluster, because its rotation has grown or there is room in an outbox."""
        queue, members = self.waiting.get(cluster), self._rotation(cluster)
        for pending in queue.group_heads() if queue is not None else ():
            candidates = _without_full(pending, members)
            size = len(pending.payload)
            has_room = any(self._has_room(one.link, size) for one in candidates)
            refused = bool(pending.full_nodes) and not candidates
            # All went while it waited for room.
            no_members = not members and pending.settle_timer.is_over
            if has_room or refused or no_members:
                self._stop_waiting(pending)
                self._assign(pending, now_s)  # Or it fails with Overloaded, or waits for a member.
            elif len(candidates) == len(members):
                return  # No member has room for it, and those behind it must not overtake it.

    def _stop_waiting(self, pending: Pending) -> None:
        pending.settle_timer.cancel()  # Else it would keep the request in memory after its end.
        queue = self.waiting[pending.cluster]
        queue.remove(pending)
        if not queue:
            del self.waiting[pending.cluster]

    @staticmethod
    def _has_room(link: Link, size_bytes: int) -> bool:
        return link.outbox.has_room(REQUESTS, size_bytes)

    # Answers

    def _match_answer(self, link: Link, ident: int) -> tuple[Pending, Candidate] | None:
        """Return the request with this id that `link` may answer; None, and counted as late, if it has ended."""
        pending = self._pending.get(ident)
        if pending is not None and pending.state == SENT:
            candidate = pending.candidate
            if candidate is not None and candidate.link is link:
                return pending, candidate
        self.late += 1
        return None

    def on_reply(self, link: Link, record: Received, _now_s: float) -> None:
        """Process a REPLY: what the handler has returned. Raises RemoteProtocolError."""
        _, ident, data, start, end = record
        link.check_payload(end - start - REPLY_PREFIX.size)
        matched = self._match_answer(link, ident)
        if matched is None:
            return
        pending, candidate = matched
        body_at = self._observe(candidate, data, start, end)
        self.replied += 1
        self._finish(pending, bytes(data[body_at:end]))

    def on_error(self, link: Link, record: Received, _now_s: float) -> None:
        """Process an ERROR, of the handler, or of the member before the handler started. Raises RemoteProtocolError."""
        _, ident, data, start, end = record
        matched = self._match_answer(link, ident)
        if matched is None:
            return
        pending, candidate = matched
        body_at = self._observe(candidate, data, start, end)
        code, message = decode_values(bytes(data[body_at:end]), "ERROR", (str, str))
        if code != EXPIRED:
            self._finish(pending, ServiceError(code, message))
        elif pending.expires_s > pending.deadline_s:
            self._release(pending)  # The caller's own scope is about to end the wait.
        else:
            self._finish(pending, _timeout(pending, executed=False))

    def _observe(self, candidate: Candidate, data: Buffer, start: int, end: int) -> int:
        if end - start < REPLY_PREFIX.size:
            raise RemoteProtocolError(f"reply of {end - start} bytes is shorter than its header")
        service_us, queue = REPLY_PREFIX.unpack_from(data, start)
        candidate.observe(service_us / 1e6, queue)
        return start + REPLY_PREFIX.size

    def on_busy(self, link: Link, record: Received, now_s: float) -> None:
        """Process a BUSY: the request was not started; ask another member, or fail with Overloaded. Raises
        RemoteProtocolError."""
        _, ident, data, start, end = record
        queue, retry_after_ms, hard, setting, limit = read_busy(bytes(data[start:end]))
        matched = self._match_answer(link, ident)
        if matched is None:
            return
        pending, candidate = matched
        candidate.queue = queue
        self.busy += 1
        # A soft BUSY from a member that was told to queue the request counts as hard: otherwise the request
        # could go round among the members until its deadline.
        if hard or not pending.soft:
            pending.full_nodes += (candidate.node,)
        else:
            pending.tried += (candidate.node,)
        pending.retry_after_s, pending.limit_reached = retry_after_ms / 1000, (setting, limit)
        self._release(pending)
        if pending.only is not None:
            self._finish(pending, _overloaded(pending, 1))
        else:
            self._assign(pending, now_s)

    # Endings

    def lost(self, link: Link, now_s: float, *, left: bool = False) -> None:
        """End the requests of a link that is gone, or whose peer is dead: each fails, or goes to another member.

        Args:
            left: the peer said goodbye, and so has acknowledged all that it will ever take.
        """
        for pending in [
            one for one in self._pending.values()
            if one.candidate is not None and one.candidate.link is link
        ]:  # fmt: skip
            taken = not left or link.data.is_acked(pending.sequence)
            executed = pending.state == SENT and taken
            node = link.peer
            self._discard_record(pending)
            self._release(pending)
            if pending.only is None and (not executed or self._idempotent(node, pending.target)):
                self.retried += 1
                pending.tried += (node,)
                if executed:
                    pending.maybe_executed_by = node
                    self._renumber(pending)
                self._assign(pending, now_s)
            else:
                error = PeerLost(pending.target, short_id(node), maybe_executed=executed)
                self._finish(pending, error)

    def _renumber(self, pending: Pending) -> None:
        """Give the request a new id.

        The member that was lost may come back while it still works on the request, and be asked again. It would
        take a second request with the same id for a violation of the protocol.
        """
        del self._pending[pending.ident]
        self._next_id += 1
        pending.ident = self._next_id
        self._pending[pending.ident] = pending
        self._expiries.add(pending.expires_s, pending.ident)

    def cancel(self, pending: Pending) -> None:
        """End a request whose answer the caller no longer wants. No effect if it has ended already."""
        if pending.state == DONE:
            return
        self._withdraw(pending)
        self._finish(pending, None)

    def _expire(self, pending: Pending, now_s: float) -> None:
        error: MeshError = _timeout(pending, executed=pending.state == SENT)
        if pending.state == WAITING and not self._rotation(pending.cluster):
            error = self._no_members(pending, now_s)
        self._withdraw(pending)
        self._finish(pending, error)

    def _withdraw(self, pending: Pending) -> None:
        """Take the request back if it has not left; if it has, tell the member."""
        candidate = pending.candidate
        if candidate is None:
            return
        if pending.state == QUEUED:
            self._discard_record(pending)
        elif pending.state == SENT:
            # Counted until the member next reports its queue: otherwise a frozen member would look idle, and
            # be asked again.
            candidate.queue += 1
            if candidate.link.up:
                candidate.link.send_control(Kind.CANCEL, pending.ident, b"")
                self._request_flush(candidate.link)

    def _discard_record(self, pending: Pending) -> None:
        record = pending.record
        if pending.candidate is not None and record is not None:
            pending.candidate.link.outbox.discard(record)

    def _release(self, pending: Pending) -> None:
        candidate = pending.candidate
        if candidate is not None:
            candidate.outstanding -= 1
            candidate.link.outstanding -= 1
            pending.candidate = None

    def _finish(self, pending: Pending, outcome: bytes | MeshError | None) -> None:
        self._release(pending)
        self._pending.pop(pending.ident, None)
        if self.waiting and pending in self.waiting.get(pending.cluster, ()):
            self._stop_waiting(pending)
        pending.state, pending.outcome = DONE, outcome
        if isinstance(outcome, MeshError):
            self.failed += 1
            if isinstance(outcome, RequestError) and pending.maybe_executed_by:
                # By `maybe_executed_by`, whatever the last member reports.
                outcome.maybe_executed = True
        pending.wake()

    def close(self, reason: str) -> None:
        """End all requests with NodeClosed, because the node leaves."""
        for pending in list(self._pending.values()):
            executed = pending.state == SENT or bool(pending.maybe_executed_by)
            self._withdraw(pending)
            # An error of its own for each: where it is raised, it collects frames of the traceback.
            self._finish(pending, NodeClosed(reason, maybe_executed=executed))


def _timeout(pending: Pending, *, executed: bool) -> RequestTimeout:
    """Return the error with the time that the caller gave, however much later it comes.

    Rounded, as the clock's readings are not exact: of 0.1 s they would make 0.0999999999999943.
    """
    timeout_s = round(max(0.0, pending.expires_s - pending.started_s), 6)
    return RequestTimeout(pending.target, timeout_s, maybe_executed=executed)


def _overloaded(pending: Pending, tried: int) -> Overloaded:
    return Overloaded(pending.target, tried, pending.retry_after_s, *pending.limit_reached)


def _without_full(pending: Pending, members: list[Candidate]) -> list[Candidate]:
    """Return those members of the rotation that have not answered that they have no room."""
    return (
        [one for one in members if one.node not in pending.full_nodes]
        if pending.full_nodes
        else members
    )
