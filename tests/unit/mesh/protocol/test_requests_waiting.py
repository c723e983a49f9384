"""Requests with nobody to go to yet, or no room on the way."""

from __future__ import annotations

import pytest

from mesh.errors import (
    NoMembers,
    Overloaded,
    RequestTimeout,
)
from mesh.protocol.frame import Kind
from mesh.protocol.link import Link
from mesh.protocol.outbox import REQUESTS, TOPICS
from mesh.protocol.request import QUEUED, SENT, WAITING, Pending, read_head
from mesh.protocol.requests import RequestTable
from tests.machines import take_frames, take_records

from .request_bench import SETTLE_S, START_S, TIMEOUT_S, Bench, outcome


def read_payload(record: tuple[int, int, bytes]) -> bytes:
    body = record[2]
    return body[read_head(body, 0, len(body))[2] :]


# Nobody there


def test_waits_for_the_first_member_until_settled() -> None:
    bench = Bench(members=0)
    pending = bench.ask()
    bench.wait(SETTLE_S - 0.1)
    assert pending.state == WAITING
    bench.wait(0.1)
    error = outcome(pending)
    assert isinstance(error, NoMembers)
    assert error.waited_s == pytest.approx(SETTLE_S)
    assert error.present == ("other",)


def test_a_loop_that_is_late_is_not_told_that_nobody_is_there() -> None:
    """Found: one that was blocked for longer than `settle_s` knew of nobody, whose first words were there to be read."""
    bench = Bench(members=0)
    pending = bench.ask()
    bench.block(2 * SETTLE_S)
    bench.table.assign_all_waiting(bench.now_s)
    assert pending.state == WAITING
    link = bench.add(1).link
    bench.table.assign_waiting("shop", bench.now_s)
    assert [ident for _, ident, _ in take_records(link)] == [pending.ident]


def test_who_waited_for_a_member_and_then_for_room_is_told_when_it_goes() -> None:
    bench = Bench(members=0)
    large = bytes(Bench().links()[0].limits.outbox_bytes)
    first, second = bench.ask(payload=large), bench.ask(payload=large)
    link = bench.add(1).link
    bench.table.assign_waiting("shop", bench.now_s)
    assert [first.state, second.state] == [QUEUED, WAITING]
    bench.wait(SETTLE_S)
    assert second.state == WAITING
    bench.candidates.clear()
    bench.table.lost(link, bench.now_s)
    bench.table.assign_waiting("shop", bench.now_s)
    bench.wait(SETTLE_S - 0.1)
    assert second.state == WAITING
    bench.wait(0.1)
    assert isinstance(outcome(second), NoMembers)


def test_goes_as_soon_as_somebody_comes() -> None:
    bench = Bench(members=0)
    pending, cancelled = bench.ask(), bench.ask()
    bench.table.cancel(cancelled)
    link = bench.add(1).link
    bench.table.assign_waiting("depot", bench.now_s)
    assert pending.state == WAITING
    bench.table.assign_waiting("shop", bench.now_s)
    assert [ident for _, ident, _ in take_records(link)] == [pending.ident]
    bench.wait(SETTLE_S)
    assert pending.state == SENT


def test_members_that_are_gone_again_are_waited_for_again() -> None:
    bench = Bench(members=0)
    pending = bench.ask()
    bench.table.assign_waiting("shop", bench.now_s)
    assert pending.state == WAITING
    bench.add(1)
    bench.table.assign_waiting("shop", bench.now_s)
    assert pending.state == QUEUED


def test_the_deadline_may_come_before_settled() -> None:
    bench = Bench(members=0)
    pending = bench.ask(timeout_s=1.0)
    bench.wait(1.0)
    assert isinstance(outcome(pending), NoMembers)


def test_nobody_left_is_waited_for_however_long_ago_it_began() -> None:
    """Found: it was told at once, where one that is asked anew waits; so was one whose loop had been blocked."""
    bench = Bench()
    pending, early = bench.ask(timeout_s=60), bench.ask(timeout_s=SETTLE_S + 2.0)
    bench.wait(SETTLE_S + 1.0)
    link = bench.candidates.pop().link
    bench.table.lost(link, bench.now_s)
    bench.wait(SETTLE_S - 0.1)
    assert pending.state == WAITING
    assert isinstance(outcome(early), NoMembers), "its deadline came before"
    bench.wait(0.1)
    assert isinstance(outcome(pending), NoMembers)


def test_requests_to_nobody_leave_nothing_behind() -> None:
    """Found: each stayed in a list, payload and all, until its cluster came; some never come."""
    bench = Bench(members=0)
    for target in ("shop", "shop/get", "depot"):
        bench.ask(target)
    bench.wait(60.0)
    assert bench.table.waiting == {}
    bench.table.cancel(bench.ask())
    assert bench.table.waiting == {}


def test_cancelled_they_leave_nothing_behind_either() -> None:
    """Found: each stayed, payload and all, until it would have been settled; there is no limit of those."""
    bench = Bench(members=0)
    for _ in range(10_000):
        bench.table.cancel(bench.ask())
    assert len(bench.timers._heap) <= 1024


# No room


def test_waits_for_room_and_goes_in_order() -> None:
    """More than an outbox may hold: nobody fails, nobody overtakes."""
    bench = Bench()
    (link,) = bench.links()
    large = bytes(link.limits.outbox_bytes)
    one, two, three = bench.ask(payload=large), bench.ask(payload=large), bench.ask(payload=b"s")
    assert [one.state, two.state, three.state] == [QUEUED, WAITING, WAITING]
    bench.table.assign_all_waiting(bench.now_s)
    assert two.state == WAITING, "there is none yet"
    link.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert [one.state, two.state, three.state] == [SENT, QUEUED, WAITING]
    link.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert three.state == QUEUED
    assert not bench.table.waiting


def test_nobody_overtakes_one_that_waits_for_room() -> None:
    """Found: small ones that were asked later took the room as soon as it came."""
    bench = Bench()
    (link,) = bench.links()
    limit = link.limits.outbox_bytes
    bench.ask(payload=bytes(limit - 4000))
    large, small = bench.ask(payload=bytes(limit - 4000)), bench.ask(payload=bytes(10))
    assert [large.state, small.state] == [WAITING, WAITING], "there would be room for the small one"
    link.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert [large.state, small.state] == [QUEUED, QUEUED]


def test_one_whose_members_are_full_holds_nobody_up() -> None:
    bench = Bench(members=2)
    one, other = bench.links()
    limit = one.limits.outbox_bytes
    other.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(limit))
    stuck = bench.ask(payload=b"stuck")
    one.outbox.take(1 << 30)
    bench.busy(one, stuck, hard=True)
    one.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(limit))
    behind = bench.ask(payload=b"behind")
    assert [stuck.state, behind.state] == [WAITING, WAITING]
    one.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert [stuck.state, behind.state] == [WAITING, QUEUED]


def refused_by_the_first(bench: Bench, count: int) -> list[Pending]:
    """Requests that left for the first member, which is about to say BUSY; nobody has room any more."""
    one, other = bench.links()
    limit = one.limits.outbox_bytes
    other.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(limit))
    asked = [bench.ask(payload=b"stuck %d" % at) for at in range(count)]
    one.outbox.take(1 << 30)
    one.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(limit))
    return asked


@pytest.mark.parametrize("stuck_every", [2, 3, 1000])
def test_many_that_wait_all_go_in_order_past_those_whose_members_are_full(stuck_every: int) -> None:
    """Of which every so many has nobody with room."""
    count = 601
    bench = Bench(members=2, requests_max=2 * count)
    one, other = bench.links()
    stuck = refused_by_the_first(bench, -(-count // stuck_every))
    rest = []
    for at in range(count):
        if at % stuck_every == 0:
            bench.busy(one, stuck[at // stuck_every], hard=True)
        else:
            rest.append(bench.ask(payload=b"%d" % at))
    one.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert {pending.state for pending in stuck} == {WAITING}
    assert {pending.state for pending in rest} == {QUEUED}
    assert [read_payload(one) for one in take_records(one)] == [one.payload for one in rest]
    other.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert not bench.table.waiting
    assert [read_payload(one) for one in take_records(other)] == [one.payload for one in stuck]


def test_what_a_flush_costs_is_not_up_to_how_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: those whose first member was full were walked over at every flush, all of them."""
    bench = Bench(members=2, requests_max=1000)
    stuck = refused_by_the_first(bench, 500)
    for pending in stuck:
        bench.busy(bench.links()[0], pending, hard=True)
    behind = [bench.ask() for _ in range(500)]
    looks = []
    takes = RequestTable._has_room

    def counted(link: Link, size_bytes: int) -> bool:
        looks.append(link)
        return takes(link, size_bytes)

    monkeypatch.setattr(RequestTable, "_has_room", staticmethod(counted))
    bench.table.assign_all_waiting(bench.now_s)
    assert len(looks) <= 4
    assert {pending.state for pending in stuck + behind} == {WAITING}


def test_of_those_with_different_members_left_the_first_goes_first() -> None:
    bench = Bench(members=2)
    one, other = bench.links()
    limit = one.limits.outbox_bytes
    (refused,) = refused_by_the_first(bench, 1)
    before = bench.ask(payload=bytes(limit))
    bench.busy(one, refused, hard=True)
    after = bench.ask(payload=bytes(limit))
    other.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert [before.state, refused.state, after.state] == [QUEUED, WAITING, WAITING]
    other.outbox.take(1 << 30)
    bench.table.assign_all_waiting(bench.now_s)
    assert [refused.state, after.state] == [QUEUED, WAITING]


def test_when_all_members_go_those_that_waited_for_room_are_told() -> None:
    """Found: they waited for their own deadline, for nobody."""
    bench = Bench()
    large = bytes(bench.links()[0].limits.outbox_bytes)
    bench.ask(payload=large, timeout_s=60)
    pending = bench.ask(payload=large, timeout_s=60)
    bench.candidates.clear()
    bench.table.assign_all_waiting(bench.now_s)
    assert pending.state == WAITING, "somebody may come yet"
    bench.wait(SETTLE_S)
    bench.table.assign_all_waiting(bench.now_s)
    assert isinstance(outcome(pending), NoMembers)


def test_all_that_waited_for_room_with_members_that_go_wait_for_others_from_then_on() -> None:
    bench = Bench(requests_max=10)
    large = bytes(bench.links()[0].limits.outbox_bytes)
    bench.ask(payload=large, timeout_s=60)
    waiting = [bench.ask(payload=bytes([one]) + large[1:], timeout_s=60) for one in range(3)]
    bench.wait(SETTLE_S)
    bench.candidates.clear()
    bench.table.assign_all_waiting(bench.now_s)
    bench.wait(SETTLE_S - 0.1)
    links = [bench.add(name).link for name in (2, 3)]
    bench.table.assign_waiting("shop", bench.now_s)
    assert [one.state for one in waiting] == [QUEUED, QUEUED, WAITING]
    assert [read_payload(*take_records(one))[0] for one in links] == [0, 1], "first come first"
    bench.candidates.clear()
    bench.table.assign_all_waiting(bench.now_s)
    bench.wait(SETTLE_S)
    assert isinstance(outcome(waiting[2]), NoMembers)


def test_goes_where_there_is_room() -> None:
    bench = Bench(members=2)
    crowded, roomy = bench.links()
    crowded.outbox.push(REQUESTS, Kind.REPLY, 1, bytes(crowded.limits.outbox_bytes))
    pending = bench.ask()
    assert pending.candidate is not None
    assert pending.candidate.link is roomy


def test_topics_take_no_room_from_requests() -> None:
    bench = Bench()
    (link,) = bench.links()
    link.outbox.push(TOPICS, Kind.BATCH, 1, bytes(link.limits.outbox_bytes))
    assert bench.ask().state == QUEUED


def test_without_room_until_the_deadline_is_a_timeout_and_was_not_executed() -> None:
    bench = Bench()
    large = bytes(bench.links()[0].limits.outbox_bytes)
    bench.ask(payload=large, timeout_s=60)
    pending = bench.ask(payload=large)
    bench.wait(SETTLE_S + 0.1)
    assert pending.state == WAITING, "there are members, so not NoMembers"
    bench.wait(TIMEOUT_S)
    error = outcome(pending)
    assert isinstance(error, RequestTimeout)
    assert not error.maybe_executed
    assert not bench.table.waiting


def test_one_that_waits_for_room_with_the_last_member_that_is_not_full() -> None:
    bench = Bench(members=2)
    full, crowded = bench.links()
    large = bytes(full.limits.outbox_bytes)
    crowded.outbox.push(REQUESTS, Kind.REPLY, 1, large)
    pending = bench.ask(payload=large)
    take_frames(full)
    full.outbox.take(1 << 30)
    bench.busy(full, pending, hard=True)
    assert pending.state == WAITING
    bench.table.assign_all_waiting(bench.now_s)
    assert pending.state == WAITING
    del bench.candidates[1]
    bench.table.assign_all_waiting(bench.now_s)
    assert isinstance(outcome(pending), Overloaded)


def test_the_one_member_asked_may_have_no_room() -> None:
    bench = Bench()
    (only,) = bench.candidates
    large = bytes(only.link.limits.outbox_bytes)
    bench.ask(payload=large)
    until_s = START_S + TIMEOUT_S
    pending = bench.table.start(
        "shop/get", large, now_s=START_S, deadline_s=until_s, expires_s=until_s,
        wake=lambda: None, only=only,
    )  # fmt: skip
    error = outcome(pending)
    assert isinstance(error, Overloaded)
    assert (error.setting, error.limit) == ("outbox_bytes", only.link.limits.outbox_bytes)
