"""What a publisher has gathered and sent: order, sizes, and who is told of which refusal."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from durable.client.gathering import Gathering
from durable.client.outbox import Outbox, Part, Waiter
from durable.errors import QueueFull, Unconfirmed
from durable.protocol.error_codec import describe_error
from durable.protocol.parts import Refusal, decode_batches
from mesh.protocol.batch import PER_MESSAGE_BYTES

messages = st.lists(
    st.tuples(
        st.sampled_from(["k", "l"]), st.sampled_from([b"", b"\x81\xa1p\x01"]),
        st.binary(max_size=300), st.none() | st.just(b"\x80"),
    ),
    max_size=60,
)  # fmt: skip


@given(messages, st.integers(100, 2000))
def test_packed_in_order_and_no_larger_than_it_has_to_be(
    given_ones: list[tuple[str, bytes, bytes, bytes | None]], part_bytes: int
) -> None:
    gathering, found, sequence = Gathering(500), [], 0
    for key, properties, payload, headers in given_ones:
        gathering.add(None, key, properties, payload, headers)
    assert gathering.count == len(given_ones)
    while gathering:
        data, count = gathering.pack(b"p" * 16, 1, sequence, 0, part_bytes)
        batches = decode_batches(data)
        assert len(data) <= part_bytes or len(batches) == 1
        assert batches[0].base_sequence == sequence
        for batch in batches:
            columns: list[Any] = batch.message_headers() or [None] * batch.count
            assert batch.count == 1 or batch.bodies_bytes + PER_MESSAGE_BYTES * batch.count <= 500
            for payload, headers in zip(batch.payloads, columns, strict=True):
                found.append((batch.topic, batch.shared_headers, payload, headers))
        sequence += count
    assert found == given_ones
    assert (gathering.count, gathering.size_bytes) == (0, 0)


def refusal(first: int, count: int) -> Refusal:
    return Refusal(first, count, *describe_error(QueueFull("q", 1, None)))


def test_parts_leave_when_all_of_them_is_decided() -> None:
    outbox = Outbox()
    for first in (0, 10):
        outbox.add(Part(first, first + 10, bytes(100)))
    outbox.handle_confirm(9, [])
    assert len(outbox.parts) == 2
    outbox.handle_confirm(10, [])
    assert (len(outbox.parts), outbox.size_bytes, outbox.confirmed) == (1, 100, 10)
    outbox.handle_confirm(5, [])
    assert outbox.confirmed == 10


def test_each_waiter_is_told_of_its_own_and_the_rest_is_kept() -> None:
    """Found: what nobody waited for was forgotten."""
    outbox = Outbox()
    first, second = Waiter(0, 5, lambda: None), Waiter(5, 8, lambda: None)
    outbox.wait_for(first)
    outbox.wait_for(second)
    outbox.handle_confirm(12, [refusal(3, 7)])
    assert (first.refused, second.refused) == ({"QueueFull": 2}, {"QueueFull": 3})
    assert first.done
    assert second.done
    unreported = outbox.take_unreported()
    assert unreported is not None
    assert unreported[1] == {"QueueFull": 2}
    assert outbox.take_unreported() is None


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), max_size=4),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), max_size=4),
)
def test_every_refusal_is_told_or_kept(
    waiters: list[tuple[int, int]], refusals: list[tuple[int, int]]
) -> None:
    """Oracle: count message by message."""
    outbox = Outbox()
    made = [Waiter(first, first + count, lambda: None) for first, count in sorted(waiters)]
    for one in made:
        outbox.wait_for(one)
    outbox.handle_confirm(0, [refusal(*one) for one in refusals])
    refused = [n for first, count in refusals for n in range(first, first + count)]
    for one in made:
        assert one.refused.total() == sum(one.first <= n < one.end for n in refused)
    alone = sum(not any(one.first <= n < one.end for one in made) for n in refused)
    unreported = outbox.take_unreported()
    assert (unreported[1].total() if unreported else 0) == alone


def test_what_was_refused_of_one_who_gave_up_is_kept() -> None:
    outbox, waiter = Outbox(), Waiter(0, 5, lambda: None)
    for first, end in ((0, 2), (2, 5)):
        outbox.add(Part(first, end, b"part"))
    outbox.wait_for(waiter)
    outbox.handle_confirm(2, [refusal(0, 2)])
    outbox.forget([waiter])
    outbox.handle_confirm(5, [refusal(3, 1)])
    assert not waiter.done
    unreported = outbox.take_unreported()
    assert unreported is not None
    assert isinstance(unreported[0], QueueFull)
    assert unreported[1] == {"QueueFull": 3}


def test_what_another_one_waits_for_is_not_kept() -> None:
    """Found: a flush told of the same messages twice, where a publish had given up beside it."""
    outbox, publish, flush = Outbox(), Waiter(1, 5, lambda: None), Waiter(0, 5, lambda: None)
    for first, end in ((0, 2), (2, 5)):
        outbox.add(Part(first, end, b"part"))
    for one in (publish, flush):
        outbox.wait_for(one)
    outbox.handle_confirm(2, [refusal(0, 2)])
    outbox.forget([publish])
    assert (flush.refused, outbox.take_unreported()) == ({"QueueFull": 2}, None)
    outbox.forget([flush])
    unreported = outbox.take_unreported()
    assert unreported is not None
    assert unreported[1] == {"QueueFull": 2}


def test_what_was_refused_before_one_gave_up_half_way_is_kept() -> None:
    """Found: of several runs, what was refused of those that were decided was told to nobody."""
    outbox, runs = Outbox(), [Waiter(0, 2, lambda: None), Waiter(3, 5, lambda: None)]
    for run in runs:
        outbox.wait_for(run)
        outbox.add(Part(run.first, run.end, b"part"))
    outbox.handle_confirm(2, [refusal(0, 2)])
    assert [run.done for run in runs] == [True, False]
    outbox.forget(runs)
    unreported = outbox.take_unreported()
    assert unreported is not None
    assert unreported[1] == {"QueueFull": 2}


def test_those_who_wait_when_it_ends_are_told_how_many_are_unknown() -> None:
    outbox = Outbox()
    waiter = Waiter(0, 10, lambda: None)
    outbox.wait_for(waiter)
    outbox.handle_confirm(4, [])
    counts: list[int] = []

    def reason(count: int) -> QueueFull:
        counts.append(count)
        return QueueFull("q", 1, None)

    outbox.fail(reason)
    assert (counts, waiter.done, outbox.size_bytes) == ([6], True, 0)


def test_what_is_decided_is_not_unknown() -> None:
    """Found: what was refused for certain, and what was stored, was told as unknown."""
    outbox = Outbox()
    waiter = Waiter(10, 30, lambda: None)
    outbox.wait_for(waiter)
    assert outbox.unknown(waiter) == 20
    outbox.handle_confirm(14, [refusal(12, 4)])
    assert outbox.unknown(waiter) == 14, "of those behind what is decided two are refused"
    outbox.fail(lambda count: Unconfirmed(count, "a test"))
    assert isinstance(waiter.error, Unconfirmed)
    assert waiter.error.count == 14
    assert isinstance(waiter.refusal, QueueFull)
    outbox.handle_confirm(40, [])
    assert outbox.unknown(Waiter(10, 30, lambda: None)) == 0


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=6),
    st.integers(0, 40), st.integers(0, 40), st.integers(0, 60),
)  # fmt: skip
def test_sequences_that_no_message_has_are_not_counted(
    steps: list[tuple[int, int]], first: int, count: int, confirmed: int
) -> None:
    """Found: a publisher that numbers its messages was told of more than it had ever sent."""
    outbox, messages, at = Outbox(), set[int](), 0
    for skipped, sent in steps:
        if skipped:
            outbox.skip(at, at + skipped)
        messages |= set(range(at + skipped, at + skipped + sent))
        at += skipped + sent
    confirmed, end = min(confirmed, at), min(first + count, at)
    outbox.handle_confirm(confirmed, [])
    refused = sorted(n for n in messages if confirmed <= n and first <= n < end)[:1]
    unknown = {n for n in messages if confirmed <= n and first <= n < end}
    assert outbox.undecided(first, end) == len(unknown)
    waiter = Waiter(first, end, lambda: None)
    outbox.wait_for(waiter)
    outbox.handle_confirm(0, [refusal(n, 1) for n in refused])
    assert outbox.unknown(waiter) == len(unknown) - len(refused)


def test_what_is_refused_of_a_part_counts_when_the_part_is_decided() -> None:
    """Found: the connection was lost in between, the part came again, and its message was stored; QueueFull
    was raised for it all the same."""
    outbox = Outbox()
    for first in (0, 2):
        outbox.add(Part(first, first + 2, bytes(100)))
    waiter = Waiter(0, 2, lambda: None)
    outbox.wait_for(waiter)
    outbox.handle_confirm(0, [refusal(1, 1)])
    assert (waiter.refused.total(), outbox.unknown(waiter)) == (0, 2)
    outbox.prepare_resend()
    outbox.handle_confirm(1, [])
    assert (outbox.latest_confirm, outbox.confirmed, waiter.done) == (1, 0, False), (
        "it comes as a whole"
    )
    outbox.handle_confirm(1, [refusal(1, 1)])
    outbox.handle_confirm(2, [refusal(3, 1)])
    assert (waiter.refused.total(), waiter.done, outbox.refused) == (1, True, 1)
    assert outbox.take_unreported() is None
    outbox.fail(lambda count: Unconfirmed(count, "a test"))
    assert outbox.refused == 2, "what is not sent again stays refused"
