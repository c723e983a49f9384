from __future__ import annotations

from math import inf

import pytest

from mesh.errors import (
    InvalidName,
    LimitReached,
    NodeClosed,
    NoMembers,
    Overloaded,
    PeerLost,
    RemoteProtocolError,
    RequestTimeout,
    ServiceError,
)
from mesh.protocol.expiries import HEAP_ENTRIES_MIN
from mesh.protocol.frame import Kind
from mesh.protocol.request import (
    DONE,
    EXPIRED,
    MAY_BE_BUSY,
    PREFIX,
    QUEUED,
    REPLY_PREFIX,
    SENT,
)
from mesh.protocol.requests import SOFT_TRIES
from tests.machines import take_frames, take_records

from .request_bench import TIMEOUT_S, Bench, outcome, prefix


def test_a_request_as_it_travels() -> None:
    bench = Bench()
    bench.ask("databases/get", b"payload", timeout_s=1.5)
    ((kind, ident, body),) = take_records(bench.links()[0])
    assert (kind, ident) == (Kind.REQUEST, 1)
    assert PREFIX.unpack_from(body) == (1500, 0, 9, 3)
    assert body[PREFIX.size :] == b"databasesgetpayload"


@pytest.mark.parametrize(
    ("timeout_s", "left_ms"), [(0.0, 1), (-0.5, 1), (1e9, 0xFFFFFFFF), (float("inf"), 0xFFFFFFFF)]
)
def test_time_left_always_fits_and_is_never_none(timeout_s: float, left_ms: int) -> None:
    bench = Bench()
    bench.ask(timeout_s=timeout_s, given_up=True)
    assert prefix(bench.links()[0])[0] == left_ms


@pytest.mark.parametrize("timeout_s", [0.0504, 0.05099, 0.051])
def test_the_member_has_no_less_time_than_the_caller(timeout_s: float) -> None:
    """Found: told in whole milliseconds, rounded down, it said that the time was over before it was."""
    bench = Bench()
    bench.ask(timeout_s=timeout_s)
    assert prefix(bench.links()[0])[0] in (51, 52)


def test_a_reply_ends_it_once_and_teaches_the_balancer() -> None:
    bench = Bench()
    (candidate,) = bench.candidates
    pending = bench.ask()
    assert (pending.state, candidate.outstanding, candidate.link.outstanding) == (QUEUED, 1, 1)
    take_records(candidate.link)
    assert pending.state == SENT
    bench.reply(candidate.link, pending)
    assert (pending.state, pending.outcome, bench.woken) == (DONE, b"reply", [pending])
    assert (candidate.outstanding, candidate.link.outstanding, len(bench.table)) == (0, 0, 0)
    assert (candidate.service_s, candidate.queue) == (2.0, 7)
    bench.reply(candidate.link, pending, b"again")
    bench.wait(60.0)
    assert (pending.outcome, bench.woken) == (b"reply", [pending])
    assert bench.counts() == (1, 1, 0, 0, 0, 1)


def test_an_error_ends_it() -> None:
    bench = Bench()
    pending = bench.ask()
    take_records(bench.links()[0])
    bench.error(bench.links()[0], pending, "no", "because")
    error = outcome(pending)
    assert isinstance(error, ServiceError)
    assert (error.code, error.message) == ("no", "because")
    assert bench.counts() == (1, 0, 1, 0, 0, 0)


def test_a_handlers_own_code_is_never_taken_for_the_meshs() -> None:
    """Found: a handler's `expired` (a card, say) became a RequestTimeout, "not executed"."""
    bench = Bench()
    pending = bench.ask()
    take_records(bench.links()[0])
    bench.error(bench.links()[0], pending, "expired", "since May")
    error = outcome(pending)
    assert isinstance(error, ServiceError)
    assert (error.code, error.maybe_executed) == ("expired", True)
    with pytest.raises(ValueError, match="empty"):
        ServiceError(EXPIRED)


def test_one_that_expired_at_the_member_ends_as_it_would_have_here() -> None:
    bench = Bench()
    pending = bench.ask()
    take_records(bench.links()[0])
    bench.error(bench.links()[0], pending, EXPIRED, "in the queue")
    error = outcome(pending)
    assert isinstance(error, RequestTimeout)
    assert not error.maybe_executed
    assert str(TIMEOUT_S) in str(error)


def test_where_the_caller_gives_up_by_itself_the_members_word_for_it_ends_nothing() -> None:
    """Found: a RequestTimeout a millisecond before the caller's own scope was over."""
    bench = Bench()
    (candidate,) = bench.candidates
    pending = bench.ask(given_up=True)
    take_records(candidate.link)
    bench.error(candidate.link, pending, EXPIRED, "in the queue")
    assert (pending.state, candidate.outstanding, bench.woken) == (SENT, 0, [])
    bench.table.cancel(pending)
    assert (pending.state, pending.outcome, len(bench.table)) == (DONE, None, 0)
    assert take_frames(candidate.link) == [], "nothing to take back"


def test_answers_nobody_may_give_change_nothing() -> None:
    bench = Bench(members=2)
    holder, stranger = bench.links()
    pending = bench.ask()
    bench.reply(holder, pending)
    assert pending.state == QUEUED, "it has not left yet"
    take_records(holder)
    bench.reply(stranger, pending)
    bench.error(stranger, pending, "no", "because")
    bench.busy(stranger, pending, hard=True)
    assert (pending.state, bench.table.late, bench.woken) == (SENT, 4, [])


def test_malformed_answers_cost_the_link_that_sent_them() -> None:
    bench = Bench()
    pending = bench.ask()
    link = bench.links()[0]
    take_records(link)
    with pytest.raises(RemoteProtocolError, match="reply of 5 bytes"):
        bench.table.on_reply(link, (Kind.REPLY, pending.ident, bytes(5), 0, 5), bench.now_s)
    for values in (("code",), (1, "text"), ("code", b"text")):
        with pytest.raises(RemoteProtocolError):
            bench.error(link, pending, *values)
    for said in ((1, 2), (1, 2, True, 3, 4), (1, 2, True, "queue_bytes", "4")):
        with pytest.raises(RemoteProtocolError):
            bench.busy_saying(link, pending, *said)
    assert pending.state == SENT


# BUSY


def test_soft_busy_is_welcome_only_while_there_are_others() -> None:
    bench = Bench(members=2)
    one, other = bench.links()
    pending = bench.ask()
    assert prefix(one)[1] == MAY_BE_BUSY
    bench.busy(one, pending, hard=False)
    assert (bench.candidates[0].queue, bench.candidates[0].outstanding, one.outstanding) == (
        9,
        0,
        0,
    )
    assert prefix(other)[1] == 0, "nobody else is left to go to"
    bench.reply(other, pending)
    assert pending.outcome == b"reply"
    assert bench.counts() == (2, 1, 0, 1, 0, 0)


def test_after_some_soft_busy_one_is_told_to_queue_it() -> None:
    bench = Bench(members=SOFT_TRIES + 3)
    pending = bench.ask()
    flags = []
    for link in bench.links()[: SOFT_TRIES + 1]:
        flags.append(prefix(link)[1])
        bench.busy(link, pending, hard=False)
    assert flags == [MAY_BE_BUSY] * SOFT_TRIES + [0]


def test_soft_busy_where_it_is_not_welcome_counts_as_hard() -> None:
    """Found: a member that kept saying so was asked again until the deadline."""
    bench = Bench(members=1)
    (link,) = bench.links()
    pending = bench.ask()
    assert prefix(link)[1] == 0
    bench.busy(link, pending, hard=False)
    assert isinstance(outcome(pending), Overloaded)
    assert take_records(link) == []


def test_when_all_are_full_it_is_overloaded() -> None:
    bench = Bench(members=2)
    pending = bench.ask()
    for link, most in zip(bench.links(), (7, 256), strict=True):
        take_records(link)
        bench.busy(link, pending, hard=True, met=("queue_requests", most))
    error = outcome(pending)
    assert isinstance(error, Overloaded)
    assert (error.tried, error.retry_after_s) == (2, 0.25)
    assert (error.setting, error.limit) == ("queue_requests", 256), "of the last one"
    assert str(error).endswith("retry after 0.250 s; queue_requests is 256")
    assert not error.maybe_executed


# Members that are lost


def test_what_had_not_left_goes_elsewhere() -> None:
    bench = Bench(members=2)
    gone, other = bench.links()
    pending = bench.ask()
    bench.candidates.pop(0)
    bench.table.lost(gone, bench.now_s)
    assert take_records(gone) == []
    assert [ident for _, ident, _ in take_records(other)] == [pending.ident]
    bench.table.lost(gone, bench.now_s)
    assert bench.counts() == (2, 0, 0, 0, 1, 0)


def test_one_that_was_lost_is_the_last_to_be_asked_again() -> None:
    bench = Bench(members=2)
    flapping, other = bench.links()
    pending = bench.ask()
    bench.table.lost(flapping, bench.now_s)
    assert pending.candidate is bench.candidates[1]
    assert take_records(other)


def test_what_had_left_fails_and_may_have_been_executed() -> None:
    bench = Bench(members=2)
    gone, other = bench.links()
    pending = bench.ask()
    take_records(gone)
    bench.table.lost(gone, bench.now_s)
    error = outcome(pending)
    assert isinstance(error, PeerLost)
    assert error.maybe_executed
    assert take_records(other) == []


def test_what_is_safe_to_ask_twice_is() -> None:
    bench = Bench(members=2)
    bench.idempotent.add("shop/get")
    gone, other = bench.links()
    pending = bench.ask()
    take_records(gone)
    bench.table.lost(gone, bench.now_s)
    take_records(other)
    bench.reply(gone, pending, b"from the dead")
    assert pending.state == SENT
    bench.reply(other, pending)
    assert pending.outcome == b"reply"


def test_what_is_asked_again_has_another_number() -> None:
    """Found: a member that was back while it still ran the first copy cut off who asked it again."""
    bench = Bench()
    bench.idempotent.add("shop/get")
    (link,) = bench.links()
    pending = bench.ask()
    ((_, first, _),) = take_records(link)
    bench.table.lost(link, bench.now_s)
    ((_, second, _),) = take_records(link)
    assert first != second
    data = REPLY_PREFIX.pack(0, 0) + b"reply"
    bench.table.on_reply(link, (Kind.REPLY, first, data, 0, len(data)), bench.now_s)
    assert (pending.state, bench.table.late) == (SENT, 1)
    bench.wait(TIMEOUT_S)
    assert isinstance(outcome(pending), RequestTimeout)
    assert (len(bench.table), bench.woken) == (0, [pending])


@pytest.mark.parametrize("acknowledged", [True, False])
def test_one_that_left_says_what_it_never_took(acknowledged: bool) -> None:
    bench = Bench(members=2)
    leaving, other = bench.links()
    pending = bench.ask()
    take_frames(leaving)
    assert pending.state == SENT
    if acknowledged:
        leaving.data.acknowledge(1)
    bench.table.lost(leaving, bench.now_s, left=True)
    assert isinstance(pending.outcome, PeerLost) is acknowledged
    assert len(take_records(other)) == (not acknowledged)


def test_one_that_died_is_not_asked_what_it_took() -> None:
    bench = Bench(members=2)
    gone, _ = bench.links()
    pending = bench.ask()
    take_frames(gone)
    bench.table.lost(gone, bench.now_s)
    assert outcome(pending)


@pytest.mark.parametrize("left", [True, False])
def test_a_request_to_one_member_never_goes_elsewhere(left: bool) -> None:
    bench = Bench(members=2)
    other, only = bench.candidates
    bench.idempotent.add("shop/get")
    pending = bench.ask(only=only)
    if left:
        assert prefix(only.link)[1] == 0
    bench.table.lost(only.link, bench.now_s)
    error = outcome(pending)
    assert isinstance(error, PeerLost)
    assert error.maybe_executed is left
    assert take_records(other.link) == []


def test_the_one_member_asked_may_be_busy() -> None:
    bench = Bench(members=2)
    other, only = bench.candidates
    pending = bench.ask(only=only)
    take_records(only.link)
    bench.busy(only.link, pending, hard=False)
    error = outcome(pending)
    assert isinstance(error, Overloaded)
    assert (error.setting, error.limit) == ("", 0), "a member of before does not say"
    assert str(error).endswith("retry after 0.250 s")
    assert take_records(other.link) == []


# Endings


def test_the_deadline_takes_it_back_if_it_has_not_left() -> None:
    bench = Bench()
    (link,) = bench.links()
    pending = bench.ask()
    bench.wait(TIMEOUT_S)
    error = outcome(pending)
    assert isinstance(error, RequestTimeout)
    assert not error.maybe_executed
    assert take_records(link) == []
    assert link.outstanding == bench.candidates[0].queue == 0


def test_the_deadline_tells_the_member_if_it_has() -> None:
    bench = Bench()
    (link,) = bench.links()
    pending = bench.ask()
    take_records(link)
    bench.wait(TIMEOUT_S)
    error = outcome(pending)
    assert isinstance(error, RequestTimeout)
    assert error.maybe_executed
    assert take_records(link) == [(Kind.CANCEL, pending.ident, b"")]
    assert bench.candidates[0].queue == 1, "it is still there, until the member says what it has"


@pytest.mark.parametrize("timeout_s", [0.1, TIMEOUT_S])
def test_the_error_says_the_time_that_the_caller_gave_however_late_it_comes(
    timeout_s: float,
) -> None:
    """Found: "within 1.001 s" for a timeout of 1, which nobody had given."""
    bench = Bench()
    pending = bench.ask(timeout_s=timeout_s)
    bench.block(timeout_s + 0.25)
    error = outcome(pending)
    assert isinstance(error, RequestTimeout)
    assert error.timeout_s == timeout_s
    assert str(error) == f"no reply from 'shop/get' within {timeout_s:.3f} s"


def test_without_any_time_nothing_is_sent() -> None:
    """Found: the member was given a millisecond, in which it may well begin."""
    bench = Bench()
    (link,) = bench.links()
    error = outcome(bench.ask(timeout_s=0.0))
    assert isinstance(error, RequestTimeout)
    assert not error.maybe_executed
    assert take_records(link) == []
    bench.candidates.clear()
    assert isinstance(outcome(bench.ask(timeout_s=0.0)), NoMembers)
    assert bench.counts() == (0, 0, 2, 0, 0, 0)
    assert (len(bench.table), len(bench.woken), link.outstanding) == (0, 2, 0)


def test_a_caller_who_gives_up_gets_no_outcome() -> None:
    bench = Bench()
    (link,) = bench.links()
    queued = bench.ask()
    bench.table.cancel(queued)
    assert take_records(link) == []
    sent = bench.ask()
    take_records(link)
    bench.table.cancel(sent)
    assert take_records(link) == [(Kind.CANCEL, sent.ident, b"")]
    assert (queued.outcome, sent.outcome, bench.woken) == (None, None, [queued, sent])
    assert (len(bench.table), link.outstanding, bench.table.failed) == (0, 0, 0)


def test_a_large_request_whose_caller_gives_up_does_not_leave() -> None:
    bench = Bench()
    (link,) = bench.links()
    bench.table.cancel(bench.ask(payload=bytes(2 * link.outbox.chunk_bytes)))
    assert take_records(link) == []
    assert (bool(link.outbox), link.outbox.size_bytes) == (False, 0)


def test_giving_up_after_the_end_changes_nothing() -> None:
    """Found: it woke the caller a second time, and took the reply away."""
    bench = Bench()
    pending = bench.ask()
    take_records(bench.links()[0])
    bench.reply(bench.links()[0], pending)
    bench.table.cancel(pending)
    assert (pending.outcome, bench.woken) == (b"reply", [pending])


def test_a_link_that_is_down_is_not_told() -> None:
    bench = Bench()
    (link,) = bench.links()
    pending = bench.ask()
    take_records(link)
    link.up = False
    bench.table.cancel(pending)
    link.up = True
    assert take_records(link) == []


def test_closing_ends_all() -> None:
    bench = Bench()
    (link,) = bench.links()
    sent = bench.ask()
    take_records(link)
    queued = bench.ask()
    bench.candidates.clear()
    waiting = bench.ask()
    bench.table.close("bye")
    errors = [outcome(one) for one in (sent, queued, waiting)]
    told = [(str(one), one.maybe_executed) for one in errors if isinstance(one, NodeClosed)]
    assert told == [("bye", True), ("bye", False), ("bye", False)]
    assert len({id(one) for one in errors}) == 3, "who raises one adds frames to it"
    assert take_records(link) == [(Kind.CANCEL, sent.ident, b"")]
    assert (len(bench.table), len(bench.woken)) == (0, 3)


def test_limits_and_names_are_checked_before_anything_begins() -> None:
    bench = Bench()
    with pytest.raises(InvalidName):
        bench.ask("No Cluster")
    for _ in range(3):
        bench.ask()
    with pytest.raises(LimitReached, match="requests_max"):
        bench.ask()
    assert (len(bench.table), bench.links()[0].outstanding) == (3, 3)


def test_each_request_expires_at_its_own_time_whatever_came_before_it() -> None:
    bench = Bench()
    late, early = bench.ask(timeout_s=3.0), bench.ask(timeout_s=1.0)
    middle = bench.ask(timeout_s=2.0)
    ended: list[tuple[int, ...]] = []
    for _ in range(3):
        bench.wait(1.0)
        ended.append(tuple(one.state == DONE for one in (early, middle, late)))
    assert ended == [(True, False, False), (True, True, False), (True, True, True)]
    assert bench.timers.due_s() == inf


def test_deadlines_of_requests_that_have_ended_are_forgotten() -> None:
    bench = Bench()
    unanswered = bench.ask(timeout_s=1000.0)
    for n in range(3 * HEAP_ENTRIES_MIN):
        pending = bench.ask(timeout_s=3000.0 - n / 10)  # Each one sooner than those before.
        bench.table.cancel(pending)
    assert len(bench.table._expiries) <= HEAP_ENTRIES_MIN + 1
    bench.wait(1000.0)
    assert unanswered.state == DONE
    assert bench.timers.due_s() == inf
