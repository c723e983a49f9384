from __future__ import annotations

import pytest

from mesh.errors import RemoteProtocolError
from mesh.names import DEFAULT_ENDPOINT
from mesh.protocol.dispatch import (
    LEAVING_LOAD,
    SOFT_MARGIN,
    Dispatcher,
    Endpoint,
    Job,
    ServiceStatistics,
)
from mesh.protocol.frame import Kind
from mesh.protocol.link import Link
from mesh.protocol.request import MAY_BE_BUSY, REPLY_PREFIX, read_busy
from mesh.protocol.values import decode_values
from tests.machines import OTHER, make_link, take_records

CONCURRENCY, QUEUE, QUEUE_BYTES = 2, 5, 1000


class Bench:
    """A dispatcher of `shop`, a caller of cluster `till`, and the jobs that were started."""

    def __init__(self) -> None:
        self.link = make_link(cluster="till")
        self.started: list[Job] = []
        self.to_flush: list[Link] = []
        self.now_s = 50.0
        self.jobs = 0
        self.dispatcher = Dispatcher(
            "shop",
            {"get": Endpoint(), "guarded": Endpoint(frozenset({"till"}))},
            {"flush": Endpoint(), "guarded": Endpoint(frozenset({"till"}))},
            concurrency=CONCURRENCY, queue_max=QUEUE, queue_bytes_max=QUEUE_BYTES,
            start=self.started.append, request_flush=self.to_flush.append,
        )  # fmt: skip

    def offer(
        self, endpoint: str = "get", *, payload: bytes = b"", flags: int = 0,
        deadline_s: float | None = None, link: Link | None = None,
    ) -> Job:  # fmt: skip
        self.jobs += 1
        job = Job(link or self.link, self.jobs, endpoint, payload, deadline_s)
        self.dispatcher.offer(job, flags, self.now_s)
        return job

    def offer_broadcast(self, endpoint: str = "flush", ident: int = 900) -> Job:
        job = Job(self.link, ident, endpoint, b"", None, reply=False)
        self.dispatcher.offer_broadcast(job, self.now_s)
        return job

    def reply(self, job: Job, payload: bytes = b"reply") -> None:
        self.dispatcher.replied(job, payload, self.now_s)

    def answers(self) -> list[tuple[str, int]]:
        return [(Kind(kind).name, ident) for kind, ident, _ in take_records(self.link)]

    def counts(self) -> dict[str, int]:
        one = self.dispatcher.statistics()
        counted = {
            "running": one.running, "queued": one.queued, "served": one.served,
            "failed": one.failed, "busy": one.busy, "expired": one.expired,
            "cancelled": one.cancelled, "dropped": one.broadcasts_dropped,
        }  # fmt: skip
        return {name: count for name, count in counted.items() if count}


def error(link: Link) -> tuple[str, str]:
    ((kind, _, body),) = take_records(link)
    assert kind == Kind.ERROR
    code, text = decode_values(body[REPLY_PREFIX.size :], "ERROR", (str, str))
    return code, text


def test_a_number_that_is_being_worked_on_costs_its_link() -> None:
    """Found: the first of two could not be cancelled any more, and ran on when its caller had left."""
    bench = Bench()
    first = bench.offer()
    bench.jobs -= 1
    with pytest.raises(RemoteProtocolError, match="request 1 received twice"):
        bench.offer()
    bench.dispatcher.lost(bench.link)
    assert first.cancelled
    assert bench.dispatcher.running == 1


def test_runs_at_once_and_answers() -> None:
    bench = Bench()
    job = bench.offer(payload=b"question")
    assert bench.started == [job]
    assert (job.caller, job.node, job.payload) == ("till", OTHER, b"question")
    bench.offer()
    bench.now_s += 1.5
    bench.reply(job, b"answer")
    ((kind, ident, body),) = take_records(bench.link)
    assert (kind, ident) == (Kind.REPLY, job.ident)
    assert REPLY_PREFIX.unpack_from(body) == (1_500_000, 1), "how long it took, who else is here"
    assert body[REPLY_PREFIX.size :] == b"answer"
    assert bench.to_flush == [bench.link]
    assert bench.counts() == {"running": 1, "served": 1}


def test_never_more_than_concurrency_and_in_order() -> None:
    bench = Bench()
    jobs = [bench.offer() for _ in range(5)]
    assert bench.started == jobs[:2]
    assert (bench.dispatcher.load, bench.counts()) == (5, {"running": 2, "queued": 3})
    bench.reply(jobs[1])
    assert bench.started == jobs[:3]
    bench.reply(jobs[0])
    bench.reply(jobs[2])
    bench.reply(jobs[3])
    assert bench.started == jobs
    bench.reply(jobs[4])
    assert bench.counts() == {"served": 5}


def test_what_a_handler_raises_is_told() -> None:
    bench = Bench()
    job = bench.offer()
    bench.dispatcher.raised(job, "no", "because", bench.now_s)
    assert error(bench.link) == ("no", "because")
    assert bench.counts() == {"failed": 1}


@pytest.mark.parametrize("text", ["\N{SNOWMAN}" * 9000, "file \udcff"])
def test_whatever_a_handler_raises_can_be_told(text: str) -> None:
    """Found: a long text cost the caller its link, a lone surrogate this node its life."""
    bench = Bench()
    bench.dispatcher.raised(bench.offer(), text, text, bench.now_s)
    code, told = error(bench.link)
    assert code == told
    assert text.replace("\udcff", "?").startswith(told)


def test_an_unknown_endpoint_is_refused() -> None:
    bench = Bench()
    bench.offer("other")
    assert error(bench.link) == ("no_such_endpoint", "shop has no endpoint 'other'")
    assert (bench.started, bench.counts()) == ([], {"failed": 1})


def test_who_named_no_endpoint_is_not_told_of_one() -> None:
    """Found: "no endpoint 'default'", which nobody had written."""
    bench = Bench()
    bench.offer(DEFAULT_ENDPOINT)
    assert error(bench.link) == (
        "no_such_endpoint",
        "shop has no plain `@service.request`, only named ones, if any: ask for shop/NAME",
    )
    bench.dispatcher.requests = {DEFAULT_ENDPOINT: Endpoint(frozenset({"street"}))}
    bench.offer(DEFAULT_ENDPOINT)
    assert error(bench.link) == ("not_allowed", "till may not call shop")


def test_only_those_who_may_call() -> None:
    bench = Bench()
    bench.offer("guarded")
    assert len(bench.started) == 1
    stranger = make_link(cluster="street")
    bench.offer("guarded", link=stranger)
    assert error(stranger) == ("not_allowed", "street may not call 'guarded'")
    assert len(bench.started) == 1


# BUSY


def test_a_full_queue_is_busy_and_says_until_when() -> None:
    """Found: it said how long a single handler would take, so 50 s where 100 run at a time."""
    bench = Bench()
    jobs = [bench.offer() for _ in range(CONCURRENCY + QUEUE)]
    bench.now_s += 2.0
    for _ in range(40):  # Two seconds each is what it learns.
        bench.reply(bench.started[-1])
        bench.offer()
        bench.now_s += 2.0
    take_records(bench.link)
    bench.offer(flags=MAY_BE_BUSY)
    ((kind, ident, body),) = take_records(bench.link)
    assert (kind, ident) == (Kind.BUSY, bench.jobs)
    queue, retry_after_ms, *said = read_busy(body)
    assert (queue, said) == (CONCURRENCY + QUEUE, [True, "queue_requests", QUEUE])
    turns = (CONCURRENCY + QUEUE) / CONCURRENCY
    assert 1_900 * turns < retry_after_ms <= 2_000 * turns
    assert bench.counts()["busy"] == 1
    assert len(jobs) == bench.dispatcher.load


def test_while_none_has_ended_busy_counts_how_long_they_run() -> None:
    """Found: members whose handlers take seconds told the first callers to come again in 2 ms."""
    bench = Bench()
    for _ in range(CONCURRENCY + QUEUE):
        bench.offer()
    for elapsed_s in (0.0, 1.0, 3.0):
        bench.now_s = 50.0 + elapsed_s
        bench.offer()
        ((_, _, body),) = take_records(bench.link)
        turns = (CONCURRENCY + QUEUE) / CONCURRENCY
        assert read_busy(body)[1] == int(1000 * max(elapsed_s, 0.001) * turns)


def test_a_handler_that_is_stuck_makes_no_other_slow() -> None:
    bench = Bench()
    (stuck,) = [bench.offer() for _ in range(CONCURRENCY - 1)]
    bench.now_s += 1000.0
    for _ in range(1 + QUEUE):
        bench.offer()
    bench.offer()
    ((_, _, body),) = take_records(bench.link)
    assert read_busy(body)[1] < 10
    assert stuck in bench.started


def test_soft_busy_when_the_caller_has_others_to_try() -> None:
    bench = Bench()
    for _ in range(CONCURRENCY + SOFT_MARGIN):
        bench.offer(flags=MAY_BE_BUSY)
    assert bench.answers() == []
    bench.offer(flags=MAY_BE_BUSY)
    ((_, _, body),) = take_records(bench.link)
    assert read_busy(body)[2:] == [False, "concurrency", CONCURRENCY]
    bench.offer()
    assert bench.answers() == [], "this caller has nobody else: it waits"


def test_the_queue_is_bounded_in_bytes() -> None:
    bench = Bench()
    running = [bench.offer(payload=bytes(QUEUE_BYTES)) for _ in range(CONCURRENCY)]
    bench.offer(payload=bytes(QUEUE_BYTES - 10))
    bench.offer(payload=bytes(11))
    ((_, ident, body),) = take_records(bench.link)
    assert (ident, read_busy(body)[2:]) == (4, [True, "queue_bytes", QUEUE_BYTES])
    bench.offer(payload=bytes(10))
    bench.offer(payload=b"x")
    assert bench.answers() == [("BUSY", 6)]
    bench.reply(running[0])
    bench.offer(payload=bytes(QUEUE_BYTES - 10))
    assert bench.answers() == [("REPLY", 1)]


def test_a_caller_that_does_not_take_its_replies_is_given_no_more() -> None:
    bench = Bench()
    limit = bench.link.limits.outbox_bytes
    bench.reply(bench.offer(), bytes(limit + 1))
    bench.offer()
    assert bench.counts() == {"served": 1, "busy": 1}
    other = bench.offer(link=make_link())
    assert bench.started[-1] is other, "nobody else has to wait for it"
    (body,) = (body for kind, _, body in take_records(bench.link) if kind == Kind.BUSY)
    assert read_busy(body)[2:] == [True, "outbox_bytes", limit]
    assert bench.offer() in bench.started


def test_a_draining_service_finishes_what_it_took() -> None:
    bench = Bench()
    jobs = [bench.offer() for _ in range(3)]
    bench.dispatcher.draining = True
    bench.offer()
    bench.offer_broadcast()
    assert bench.answers() == [("BUSY", 4)]
    for job in jobs:
        bench.reply(job)
    assert (bench.started, len(bench.answers())) == (jobs, 3)
    assert bench.counts() == {"served": 3, "busy": 1, "dropped": 1}


def test_a_draining_service_says_so_with_every_answer() -> None:
    """Found: one refusal told callers how little it had to do, and they came until the next heartbeat."""
    bench = Bench()
    bench.offer()
    bench.dispatcher.draining = True
    bench.offer()
    bench.reply(bench.started[0])
    (_, _, busy), (_, _, reply) = sorted(take_records(bench.link), reverse=True)
    assert read_busy(busy)[::2] == [LEAVING_LOAD, True, 0]
    assert REPLY_PREFIX.unpack_from(reply)[1] == 0xFFFF


# Deadlines and callers that give up


def test_an_expired_one_is_never_started() -> None:
    bench = Bench()
    running = [bench.offer() for _ in range(CONCURRENCY)]
    expired, alive = bench.offer(deadline_s=51.0), bench.offer(deadline_s=51.1)
    bench.now_s = 51.0
    bench.reply(running[0])
    assert bench.started == [*running, alive]
    assert bench.answers() == [("REPLY", 1), ("ERROR", expired.ident)]
    assert bench.counts() == {"running": 2, "served": 1, "failed": 1, "expired": 1}
    assert not bench.dispatcher.cancel_request(bench.link, expired.ident)


def test_cancelling_reaches_the_handler() -> None:
    bench = Bench()
    job = bench.offer()
    cancelled: list[bool] = []
    job.cancel = lambda: cancelled.append(True)
    assert bench.dispatcher.cancel_request(bench.link, job.ident)
    assert (cancelled, job.cancelled) == ([True], True)
    assert not bench.dispatcher.cancel_request(bench.link, job.ident)
    bench.reply(job)
    assert bench.answers() == [], "nobody waits for it"
    assert bench.counts() == {"served": 1, "cancelled": 1}


def test_a_cancelled_one_is_never_started() -> None:
    bench = Bench()
    running = [bench.offer() for _ in range(CONCURRENCY)]
    waiting, other = bench.offer(), bench.offer()
    assert bench.dispatcher.cancel_request(bench.link, waiting.ident)
    bench.reply(running[0])
    assert bench.started == [*running, other]
    assert bench.answers() == [("REPLY", 1)]


def test_a_cancelled_one_takes_no_place_in_the_queue() -> None:
    """Found: callers that had given up kept the queue full, and others were told BUSY."""
    bench = Bench()
    for _ in range(CONCURRENCY):
        bench.offer()
    waiting = [bench.offer(payload=bytes(QUEUE_BYTES // QUEUE)) for _ in range(QUEUE)]
    for job in waiting:
        bench.dispatcher.cancel_request(bench.link, job.ident)
    assert bench.counts() == {"running": CONCURRENCY, "cancelled": QUEUE}
    bench.offer(payload=bytes(QUEUE_BYTES))
    assert bench.answers() == []


def test_only_requests_that_are_here_can_be_cancelled() -> None:
    bench = Bench()
    job = bench.offer()
    assert not bench.dispatcher.cancel_request(make_link(), job.ident)
    bench.reply(job)
    assert not bench.dispatcher.cancel_request(bench.link, job.ident)


def test_callers_that_are_lost_are_cancelled() -> None:
    bench = Bench()
    other = make_link()
    mine, theirs, queued = bench.offer(), bench.offer(link=other), bench.offer()
    bench.dispatcher.lost(bench.link)
    assert (mine.cancelled, theirs.cancelled, queued.cancelled) == (True, False, True)
    bench.link.up = False
    bench.reply(mine)
    assert not bench.link.outbox
    assert bench.dispatcher.load == 1


# Broadcasts


def test_broadcasts_run_without_an_answer() -> None:
    bench = Bench()
    job = bench.offer_broadcast()
    assert bench.started == [job]
    bench.reply(job)
    bench.dispatcher.raised(bench.offer_broadcast(), "no", "", bench.now_s)
    assert bench.answers() == []


def test_broadcasts_nobody_handles_or_may_send_are_dropped_and_counted() -> None:
    bench = Bench()
    bench.offer_broadcast("get")
    bench.link.cluster = "street"
    bench.offer_broadcast("guarded")
    assert bench.started == []
    bench.link.cluster = "till"
    bench.offer_broadcast("guarded")
    assert len(bench.started) == 1
    assert bench.counts() == {"running": 1, "dropped": 2}


def test_broadcasts_wait_their_turn_or_are_dropped() -> None:
    bench = Bench()
    for _ in range(CONCURRENCY + QUEUE + 1):
        bench.offer_broadcast()
    assert bench.counts() == {"running": CONCURRENCY, "queued": QUEUE, "dropped": 1}
    bench.reply(bench.started[0])
    assert len(bench.started) == CONCURRENCY + 1


def test_a_broadcast_that_ends_is_not_taken_for_a_request() -> None:
    """Found: both count from one, and a request was beyond cancelling once a broadcast ended."""
    bench = Bench()
    request = bench.offer()
    broadcast = bench.offer_broadcast(ident=request.ident)
    bench.reply(broadcast)
    assert bench.dispatcher.cancel_request(bench.link, request.ident)


def test_statistics_name_the_service() -> None:
    assert Bench().dispatcher.statistics() == ServiceStatistics("shop", 0, 0, 0, 0, 0, 0, 0, 0)
