"""Groups of batches against plain lists of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.vhost.groups import ENTRY_BYTES, FRONT, batches_in, encode_group, is_group, read_front
from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import Batch
from tests.logs import PUBLISHER, following

payloads = st.lists(st.binary(max_size=20), min_size=1, max_size=4)
parts = st.lists(st.tuples(st.sampled_from([b"", b"a", b"b.c"]), payloads), min_size=1, max_size=8)
FIRST = 1000
"""Sequence of the first message in its lane."""


def batches_of(some: Iterable[tuple[bytes, Sequence[bytes]]]) -> list[Batch]:
    return following([(key, payloads, None) for key, payloads in some], 5)


@given(parts, st.one_of(st.none(), st.integers(0, 2**40)))
def test_a_group_says_what_its_batches_say(
    some: list[tuple[bytes, list[bytes]]], ttl_us: int | None
) -> None:
    batches = batches_of(some)
    body = encode_group(batches, ttl_us)
    assert is_group(body)
    assert not any(is_group(one.raw()) for one in batches)
    front = read_front(body)
    assert (front.batches, front.first, front.ttl_us) == (len(some), 5, ttl_us)
    assert (front.epoch, front.publisher) == (1, PUBLISHER)
    everything = [payload for _, bodies in some for payload in bodies]
    assert (front.messages, front.bodies_bytes) == (len(everything), sum(map(len, everything)))


@given(parts, st.integers(0, 40), st.integers(1, 40))
def test_of_a_range_come_the_batches_it_touches(
    some: list[tuple[bytes, list[bytes]]], at: int, count: int
) -> None:
    messages = [(key.decode(), payload) for key, bodies in some for payload in bodies]
    start, end = FIRST + at, FIRST + at + count
    found = batches_in(encode_group(batches_of(some), None), FIRST, start, end)
    for batch, first in found:
        assert first < end
        assert first + batch.count > start
        assert [(batch.topic, one) for one in batch.payloads] == (
            messages[first - FIRST : first - FIRST + batch.count]
        )
    there = {first + one for batch, first in found for one in range(batch.count)}
    assert {*range(start, end)} & {*range(FIRST, FIRST + len(messages))} <= there


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
    with pytest.raises(RemoteProtocolError, match="its group says otherwise"):
        batches_in(bytes(body), FIRST, FIRST, FIRST + 9)


@given(parts, st.data())
def test_whatever_stands_there_no_error_but_one(
    some: list[tuple[bytes, list[bytes]]], data: st.DataObject
) -> None:
    """Of a group that was changed, mostly in front, or cut."""
    body = bytearray(encode_group(batches_of(some), None))
    front = FRONT.size + ENTRY_BYTES * len(some)
    for _ in range(data.draw(st.integers(0, 3))):
        end = data.draw(st.sampled_from([front, front, len(body)]))
        body[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(body[: data.draw(st.sampled_from([len(body), len(body), len(body) // 2]))])
    with suppress(RemoteProtocolError):
        read_front(changed)
    with suppress(RemoteProtocolError):
        for batch, first in batches_in(changed, FIRST, FIRST, FIRST + 10):
            batch.check()
            assert FIRST <= first < FIRST + 10
