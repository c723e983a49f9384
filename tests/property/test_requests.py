"""The request table and the dispatcher against plain ledgers of what happened."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesh.errors import (
    NoMembers,
    Overloaded,
    PeerLost,
    RequestError,
    RequestTimeout,
    ServiceError,
)
from mesh.protocol.balancer import Candidate, choose_of_two
from mesh.protocol.dispatch import Dispatcher, Endpoint, Job
from mesh.protocol.frame import CONTROL, Frame, Kind
from mesh.protocol.link import Link, LinkLimits
from mesh.protocol.request import DONE, MAY_BE_BUSY, PREFIX, REPLY_PREFIX, Pending
from mesh.protocol.requests import RequestTable
from mesh.protocol.timers import Timers
from mesh.protocol.values import encode_values

LIMITS = LinkLimits(
    window_bytes=1 << 20, frame_bytes_max=4096, chunk_bytes=1024, outbox_bytes=1 << 20,
    record_bytes_max=1 << 20, reassembly_bytes_max=1 << 20, ack_delay_s=0.05,
)  # fmt: skip
TIMEOUT_S, SETTLE_S = 5.0, 2.0


def make_link(name: int) -> Link:
    link = Link(bytes([name]) * 16, "x", b"k" * 16, dialled=True, limits=LIMITS)
    for lane in (0, 1):
        link.attach(lane, (lane, name), 1)
    return link


class Requests(RuleBasedStateMachine):
    """Ledger: every request, how often it was woken, and how often a member took it for good.

    Promises: each ends exactly once, by its deadline; it is taken at most once unless it is
    idempotent; what is counted as outstanding is what is outstanding.
    """

    @initialize()
    def start(self) -> None:
        self.now_s = 0.0
        self.timers = Timers()
        self.candidates: dict[int, Candidate] = {}
        self.names = 0
        self.table = RequestTable(
            lambda cluster: list(self.candidates.values()), choose_of_two, self.timers, Random(1),
            settle_s=SETTLE_S, requests_max=1000, request_flush=lambda link: None, present=tuple,
            idempotent=lambda node, target: target == "x/twice",
        )  # fmt: skip
        self.pending: list[Pending] = []
        self.woken: list[int] = []
        self.held: list[tuple[Link, int]] = []
        self.taken: list[int] = []
        self.numbers: dict[int, int] = {}
        """Of requests on the wire: which of `pending` each is a copy of."""
        self.member_comes()

    @rule()
    def member_comes(self) -> None:
        if len(self.candidates) < 4:
            self.names += 1
            link = make_link(self.names)
            self.candidates[self.names] = Candidate(link.peer, link)
            self.table.assign_waiting("x", self.now_s)

    @rule(idempotent=st.booleans())
    def ask(self, idempotent: bool) -> None:
        number = len(self.pending)
        self.woken.append(0)
        self.taken.append(0)

        def wake() -> None:
            self.woken[number] += 1

        target = "x/twice" if idempotent else "x/once"
        pending = self.table.start(
            target, b"%04d" % number, now_s=self.now_s, deadline_s=self.now_s + TIMEOUT_S,
            expires_s=self.now_s + TIMEOUT_S, wake=wake,
        )  # fmt: skip
        self.pending.append(pending)

    @rule()
    def frames_leave(self) -> None:
        for candidate in self.candidates.values():
            out: list[object] = []
            candidate.link.flush(out)  # type: ignore[arg-type]
            for item in out:
                assert isinstance(item, tuple)
                frame = Frame(item[1])
                if frame.lane == CONTROL:
                    for kind, _, ident, _, _ in frame.records:
                        assert kind == Kind.CANCEL
                        self.held = [one for one in self.held if one != (candidate.link, ident)]
                    continue
                for kind, _, ident, start, end in frame.records:
                    assert kind == Kind.REQUEST
                    assert end - start > PREFIX.size
                    number = self.numbers[ident] = int(bytes(frame.data[end - 4 : end]))
                    self.taken[number] += 1
                    assert (candidate.link, ident) not in self.held, "a violation: it came twice"
                    self.held.append((candidate.link, ident))

    @rule(place=st.integers(0, 50), error=st.booleans())
    def answer(self, place: int, error: bool) -> None:
        if not self.held:
            return
        link, ident = self.held.pop(place % len(self.held))
        body = encode_values("no", "because") if error else b"reply"
        data = REPLY_PREFIX.pack(1000, 1) + body
        handle = self.table.on_error if error else self.table.on_reply
        handle(link, (Kind.ERROR if error else Kind.REPLY, ident, data, 0, len(data)), self.now_s)

    @rule(place=st.integers(0, 50), hard=st.booleans())
    def busy(self, place: int, hard: bool) -> None:
        if not self.held:
            return
        link, ident = self.held.pop(place % len(self.held))
        # It was not started: going elsewhere is no second time.
        self.taken[self.numbers[ident]] -= 1
        body = encode_values(9, 100, hard)
        self.table.on_busy(link, (Kind.BUSY, ident, body, 0, len(body)), self.now_s)

    @rule(place=st.integers(0, 50))
    def give_up(self, place: int) -> None:
        if self.pending:
            pending = self.pending[place % len(self.pending)]
            if pending.state != DONE:
                self.table.cancel(pending)

    @rule(place=st.integers(0, 50))
    def member_dies(self, place: int) -> None:
        if self.candidates:
            name = sorted(self.candidates)[place % len(self.candidates)]
            link = self.candidates.pop(name).link
            link.up = False
            self.held = [one for one in self.held if one[0] is not link]
            self.table.lost(link, self.now_s)

    @rule(place=st.integers(0, 50))
    def member_is_dead_and_comes_back(self, place: int) -> None:
        """Its path was away for long, and its link goes on: what it holds, it still does."""
        if self.candidates:
            name = sorted(self.candidates)[place % len(self.candidates)]
            candidate = self.candidates.pop(name)
            self.table.lost(candidate.link, self.now_s)
            self.candidates[name] = candidate
            self.table.assign_waiting("x", self.now_s)

    @rule(seconds=st.floats(0.0, 3.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.timers.run(self.now_s)

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "table"):
            return
        for number, pending in enumerate(self.pending):
            done = pending.state == DONE
            assert self.woken[number] == done, "woken once, when it ends"
            assert done or self.now_s < pending.started_s + TIMEOUT_S
            assert pending.target == "x/twice" or self.taken[number] <= 1
            if done and pending.outcome is not None:
                assert isinstance(
                    pending.outcome,
                    bytes | ServiceError | PeerLost | NoMembers | Overloaded | RequestTimeout,
                )
            if isinstance(pending.outcome, RequestError) and not pending.outcome.maybe_executed:
                assert self.taken[number] == 0
        carried = [one.candidate for one in self.pending if one.candidate is not None]
        for candidate in self.candidates.values():
            assert candidate.outstanding == sum(one is candidate for one in carried)
            assert candidate.link.outstanding == candidate.outstanding
        assert len(self.table) == sum(one.state != DONE for one in self.pending)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.time_passes(TIMEOUT_S)
            self.promises()
            assert len(self.table) == 0


TestRequests = Requests.TestCase


class Dispatching(RuleBasedStateMachine):
    """Ledger: jobs offered, started, answered. Never over concurrency; each job ends once."""

    CONCURRENCY, QUEUE = 3, 4

    @initialize()
    def start(self) -> None:
        self.now_s = 1.0
        self.link = make_link(1)
        self.running: list[Job] = []
        self.started: list[int] = []
        self.cancelled: set[int] = set()
        self.offered: dict[int, float | None] = {}
        self.answers: dict[int, str] = {}
        self.dispatcher = Dispatcher(
            "x", {"default": Endpoint(), "guarded": Endpoint(frozenset({"other"}))}, {},
            concurrency=self.CONCURRENCY, queue_max=self.QUEUE, queue_bytes_max=1 << 20,
            start=self.began, request_flush=lambda link: None,
        )  # fmt: skip

    def began(self, job: Job) -> None:
        assert job.deadline_s is None or self.now_s < job.deadline_s, "expired before it started"
        assert job.ident not in self.cancelled
        self.running.append(job)
        self.started.append(job.ident)

    def collect(self) -> None:
        out: list[object] = []
        self.link.flush(out)  # type: ignore[arg-type]
        for item in out:
            assert isinstance(item, tuple)
            for kind, _, ident, _, _ in Frame(item[1]).records:
                assert ident not in self.answers, "answered once"
                self.answers[ident] = Kind(kind).name
        self.link.data.acknowledge(self.link.data.next_sequence - 1)
        self.link.control.acknowledge(self.link.control.next_sequence - 1)

    @rule(
        soft=st.booleans(),
        deadline=st.one_of(st.none(), st.floats(0.1, 3.0)),
        guarded=st.booleans(),
    )
    def offer(self, soft: bool, deadline: float | None, guarded: bool) -> None:
        ident = len(self.offered) + 1
        self.offered[ident] = None if deadline is None else self.now_s + deadline
        endpoint = "guarded" if guarded else "default"
        job = Job(self.link, ident, endpoint, b"p", self.offered[ident])
        self.dispatcher.offer(job, MAY_BE_BUSY if soft else 0, self.now_s)
        self.collect()
        if guarded:
            assert self.answers[ident] == "ERROR"

    @rule(place=st.integers(0, 10), fails=st.booleans())
    def finish(self, place: int, fails: bool) -> None:
        if self.running:
            job = self.running.pop(place % len(self.running))
            if job.cancelled:
                self.dispatcher.finished(job, self.now_s)
            elif fails:
                self.dispatcher.raised(job, "no", "because", self.now_s)
            else:
                self.dispatcher.replied(job, b"r", self.now_s)
            self.collect()

    @rule(place=st.integers(1, 50))
    def cancel(self, place: int) -> None:
        if place in self.offered and self.dispatcher.cancel_request(self.link, place):
            self.cancelled.add(place)

    @rule(seconds=st.floats(0.0, 1.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        assert len(self.running) == self.dispatcher.running <= self.CONCURRENCY
        assert self.dispatcher.load <= self.CONCURRENCY + self.QUEUE
        assert len(self.started) == len(set(self.started))
        for ident, answer in self.answers.items():
            assert answer != "BUSY" or ident not in self.started, "BUSY only before it starts"
            assert ident not in self.cancelled

    def teardown(self) -> None:
        if hasattr(self, "dispatcher"):
            while self.running:
                self.finish(0, False)
            ended = set(self.answers) | self.cancelled
            assert ended == set(self.offered), "every job ends"


TestDispatching = Dispatching.TestCase
