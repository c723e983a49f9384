"""Groups of batches against plain lists of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.vhost.groups import (
    FRONT,
    GroupStretch,
    batches_in,
    encode_group,
    is_group,
    read_front,
    sequences_in,
)
from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import Batch
from tests.logs import PUBLISHER, following

payloads = st.lists(st.binary(max_size=20), min_size=1, max_size=4)
parts = st.lists(st.tuples(st.sampled_from([b"", b"a", b"b.c"]), payloads), min_size=1, max_size=8)
FIRST = 1000
"""Sequence of the first message in its lane."""


@st.composite
def grouped(draw: st.DrawFn) -> tuple[list[Batch], GroupStretch | None]:
    """Batches whose sequences follow each other, or rise, and what they are part of."""
    some = draw(parts)
    holes = draw(st.one_of(st.just([0] * len(some)), _holes(len(some))))
    batches = following([(key, bodies, None) for key, bodies in some], 5, holes=holes)
    stretches = st.builds(
        GroupStretch, st.integers(0, 5), st.integers(0, 2**32 - 1), st.integers(9, 12)
    )
    return batches, draw(st.one_of(st.none(), stretches))


def _holes(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from([0, 1, 7, 1000]), min_size=count, max_size=count)


@given(grouped(), st.one_of(st.none(), st.integers(0, 2**40)), st.integers(0, 8))
def test_a_group_says_what_its_batches_say(
    group: tuple[list[Batch], GroupStretch | None], ttl_us: int | None, number: int
) -> None:
    batches, stretch = group
    body = encode_group(batches, ttl_us, stretch, number)
    assert is_group(body)
    assert not any(is_group(one.raw()) for one in batches)
    front = read_front(body)
    assert (front.batches, front.ttl_us) == (len(batches), ttl_us)
    assert (front.epoch, front.publisher) == (1, PUBLISHER)
    assert front.messages == sum(one.count for one in batches)
    assert front.bodies_bytes == sum(one.bodies_bytes for one in batches)
    assert front.stretch == stretch
    assert stretch is None or front.number == number
    sequences = {at for one in batches for at in range(one.base_sequence, one.next_sequence)}
    found = sequences_in(body, front)
    assert {at for low, high in found for at in range(low, high)} == sequences
    assert all(high < low for (_, high), (low, _) in pairwise(found)), "as few as they are"
    assert front.spread == (stretch is not None or len(found) > 1)


@given(grouped(), st.integers(0, 40), st.integers(1, 40))
def test_of_a_range_come_the_batches_it_touches(
    group: tuple[list[Batch], GroupStretch | None], at: int, count: int
) -> None:
    batches, stretch = group
    messages = [(batch.topic, payload) for batch in batches for payload in batch.payloads]
    start, end = FIRST + at, FIRST + at + count
    found = batches_in(encode_group(batches, None, stretch), FIRST, start, end)
    for batch, first in found:
        assert first < end
        assert first + batch.count > start
        assert [(batch.topic, one) for one in batch.payloads] == (
            messages[first - FIRST : first - FIRST + batch.count]
        )
    there = {first + one for batch, first in found for one in range(batch.count)}
    assert {*range(start, end)} & {*range(FIRST, FIRST + len(messages))} <= there


def batches_of(some: Iterable[tuple[bytes, Sequence[bytes]]]) -> list[Batch]:
    return following([(key, payloads, None) for key, payloads in some], 5)


def changed(at: int, value: int) -> bytes:
    """Two batches, of one message and of three: front, then 72 bytes and 1 in the table, 84 and 3."""
    body = bytearray(encode_group(batches_of([(b"a", [b"one"]), (b"b", [b"t"] * 3)]), None))
    assert (body[68], body[76]) == (1, 3)
    body[at] = value
    return bytes(body)


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (0, 0, "magic"), (2, 9, "version 9"), (3, 1, "kind 1"), (8, 1, "claims"), (12, 0, "claims 0"),
        (13, 9, "claims 2306"),
    ],
)  # fmt: skip
def test_a_front_that_cannot_be(at: int, value: int, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        read_front(changed(at, value))
    with pytest.raises(RemoteProtocolError, match="shorter"):
        read_front(changed(at, value)[: FRONT.size - 1])


@pytest.mark.parametrize(("at", "value"), [(16, 9), (64, 1), (68, 3), (72, 85), (76, 1)])
def test_a_table_that_does_not_add_up(at: int, value: int) -> None:
    with pytest.raises(RemoteProtocolError, match="batches end at"):
        batches_in(changed(at, value), FIRST, FIRST, FIRST + 9)


def test_a_table_that_disagrees_with_its_batches_is_wrong() -> None:
    """One message more there, one fewer here: the sum is right."""
    body = bytearray(encode_group(batches_of([(b"a", [b"one"]), (b"b", [b"t"] * 3)]), None))
    body[68], body[76] = 2, 2
    with pytest.raises(RemoteProtocolError, match="unlike what its group says"):
        batches_in(bytes(body), FIRST, FIRST, FIRST + 9)


@given(grouped(), st.data())
def test_whatever_stands_there_no_error_but_one(
    group: tuple[list[Batch], GroupStretch | None], data: st.DataObject
) -> None:
    """Of a group that was changed, mostly in front, or cut."""
    batches, stretch = group
    body = bytearray(encode_group(batches, None, stretch))
    front = len(body) - sum(one.size_bytes for one in batches)
    for _ in range(data.draw(st.integers(0, 3))):
        end = data.draw(st.sampled_from([front, front, len(body)]))
        body[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(body[: data.draw(st.sampled_from([len(body), len(body), len(body) // 2]))])
    with suppress(RemoteProtocolError):
        sequences_in(changed, read_front(changed))
    with suppress(RemoteProtocolError):
        for batch, first in batches_in(changed, FIRST, FIRST, FIRST + 10):
            batch.check()
            assert FIRST <= first < FIRST + 10
