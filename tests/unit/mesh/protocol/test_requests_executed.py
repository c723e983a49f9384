"""What a request's error says of a member that had it first, may have executed it, and was lost."""

from __future__ import annotations

import pytest

from mesh.errors import (
    NoMembers,
    Overloaded,
    PeerLost,
    RequestError,
    RequestTimeout,
    ServiceError,
)
from mesh.protocol.frame import Kind
from mesh.protocol.link import Link
from mesh.protocol.outbox import REQUESTS
from mesh.protocol.request import EXPIRED, SENT, WAITING, Pending
from tests.machines import take_frames, take_records

from .request_bench import SETTLE_S, TIMEOUT_S, Bench, outcome


def lost(*, left: bool, others: int = 1) -> tuple[Bench, Pending, list[Link]]:
    """A request that is safe to ask twice, after its first member is lost: with the next one, if any."""
    bench = Bench(1 + others)
    bench.idempotent.add("shop/get")
    first, *rest = bench.links()
    pending = bench.ask()
    if left:
        assert take_records(first)
    del bench.candidates[0]
    bench.table.lost(first, bench.now_s)
    return bench, pending, rest


def check(pending: Pending, kind: type[RequestError], *, executed: bool) -> None:
    error = outcome(pending)
    assert type(error) is kind
    assert isinstance(error, RequestError)
    assert error.maybe_executed is executed


@pytest.mark.parametrize("left", [True, False])
def test_with_nobody_else(left: bool) -> None:
    """Found, as all that follow: it was said to be not executed."""
    bench, pending, _ = lost(left=left, others=0)
    bench.wait(SETTLE_S)
    check(pending, NoMembers, executed=left)


@pytest.mark.parametrize("left", [True, False])
def test_the_next_one_is_busy(left: bool) -> None:
    bench, pending, (other,) = lost(left=left)
    take_records(other)
    bench.busy(other, pending, hard=True)
    check(pending, Overloaded, executed=left)


@pytest.mark.parametrize("left", [True, False])
def test_the_time_is_over_before_it_leaves_for_the_next_one(left: bool) -> None:
    bench, pending, _ = lost(left=left)
    bench.wait(TIMEOUT_S)
    check(pending, RequestTimeout, executed=left)


@pytest.mark.parametrize("left", [True, False])
def test_the_time_is_over_in_the_queue_of_the_next_one(left: bool) -> None:
    bench, pending, (other,) = lost(left=left)
    take_records(other)
    bench.error(other, pending, EXPIRED, "the deadline passed in the queue")
    check(pending, RequestTimeout, executed=left)


@pytest.mark.parametrize("left", [True, False])
def test_the_next_one_has_no_such_endpoint(left: bool) -> None:
    bench, pending, (other,) = lost(left=left)
    take_records(other)
    bench.error(other, pending, "no_such_endpoint", "it has not")
    check(pending, ServiceError, executed=left)


@pytest.mark.parametrize("left", [True, False])
def test_the_next_one_is_lost_before_it_leaves(left: bool) -> None:
    bench, pending, (other,) = lost(left=left)
    bench.candidates.clear()
    bench.table.lost(other, bench.now_s)
    assert pending.state == WAITING
    bench.wait(SETTLE_S)
    check(pending, NoMembers, executed=left)


def test_the_next_one_takes_less() -> None:
    """It would be TooLarge, which says that nothing was sent."""
    bench = Bench(2)
    bench.idempotent.add("shop/get")
    first, other = bench.links()
    other.payload_bytes_max = 1
    pending = bench.ask()
    assert take_records(first)
    del bench.candidates[0]
    bench.table.lost(first, bench.now_s)
    check(pending, PeerLost, executed=True)
    assert first.peer.hex()[:8] in str(pending.outcome)


def test_the_node_leaves_while_it_waits_for_room() -> None:
    bench = Bench(2)
    bench.idempotent.add("shop/get")
    first, other = bench.links()
    pending = bench.ask()
    assert take_records(first)
    other.outbox.limit_bytes = 1
    other.outbox.push(REQUESTS, Kind.REQUEST, 99, bytes(9))
    del bench.candidates[0]
    bench.table.lost(first, bench.now_s)
    assert pending.state == WAITING
    bench.table.close("bye")
    assert getattr(pending.outcome, "maybe_executed", None) is True


@pytest.mark.parametrize(
    ("acknowledged", "executed"), [(0, False), (1, False), (7, False), (8, True)]
)
def test_one_that_left_never_took_what_it_has_not_all_of(acknowledged: int, executed: bool) -> None:
    """Found: what a member had of a large request, when it left, was said to have been executed."""
    bench = Bench(2)
    leaving, other = bench.links()
    pending = bench.ask(payload=bytes(12_000))
    for frame in range(1, acknowledged + 1):
        take_frames(leaving)  # As many as the window has room for, which is not all of them.
        leaving.data.acknowledge(frame)
    take_frames(leaving)
    assert pending.state == SENT
    del bench.candidates[0]
    bench.table.lost(leaving, bench.now_s, left=True)
    if executed:
        check(pending, PeerLost, executed=True)
    else:
        assert len(take_records(other)) == 1


def test_the_rest_of_it_that_leaves_for_one_that_is_back_says_nothing_of_the_next_one() -> None:
    bench = Bench(2)
    bench.idempotent.add("shop/get")
    back, other = bench.links()
    pending = bench.ask(payload=bytes(12_000))
    take_frames(back)
    del bench.candidates[0]
    bench.table.lost(back, bench.now_s)
    take_records(other)
    sequence = pending.sequence
    other.data.next_sequence += 1  # Something else leaves there.
    back.data.acknowledge(1)
    while take_frames(back):
        back.data.acknowledge(back.data.next_sequence - 1)
    assert not back.outbox
    assert pending.sequence == sequence > 0
