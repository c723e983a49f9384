"""Slices on their way to a client: nothing is lost or doubled, and every part fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.broker.slices import PART_BYTES, Part, Slices
from durable.errors import ConsumerCancelled
from durable.protocol.parts import decode_slices
from tests.vhosts import make_batch

batches = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=9), min_size=1, max_size=9)


def read(parts: list[Part]) -> list[tuple[int, int, bytes]]:
    """Tag, times returned and payload of each message."""
    return [
        (one.tag + at, one.returned, payload)
        for part in parts
        for one in decode_slices(part.data)
        for at, payload in enumerate(one.batch.payloads)
    ]


def payloads_of(parts: list[Part]) -> list[bytes]:
    return [payload for _, _, payload in read(parts)]


@given(batches, st.integers(150, 600), st.data())
def test_whatever_the_tunnel_takes_all_of_it_comes_in_order(
    payloads: list[list[bytes]], part_bytes_max: int, data: st.DataObject
) -> None:
    slices, parts, tag = Slices("jobs", part_bytes_max), list[Part](), 0
    wanted: list[tuple[int, int, bytes]] = []
    for returned, some in enumerate(payloads):
        slices.add(tag, returned, make_batch(tag, some))
        wanted += [(tag + at, returned, payload) for at, payload in enumerate(some)]
        tag += len(some)
        if data.draw(st.booleans()):
            taken = slices.take()
            assert taken
            parts += taken
    while taken := slices.take():
        parts += taken
    assert read(parts) == wanted
    assert max(len(part.data) for part in parts) <= part_bytes_max
    assert [part.end for part in parts] == [read([part])[-1][0] + 1 for part in parts]


def test_small_ones_share_a_part_and_a_large_one_has_its_own() -> None:
    slices = Slices("jobs", 1 << 20)
    for tag in range(3):
        slices.add(tag, 0, make_batch(tag, [bytes(1000)]))
    slices.add(3, 0, make_batch(3, [bytes(PART_BYTES)]))
    assert [part.end for part in slices.take()] == [3, 4]
    slices.add(4, 0, make_batch(4, [b"x"]))
    assert not slices.full
    assert [part.end for part in slices.take()] == [5]
    assert slices.take() == []


def test_a_message_that_is_too_large_alone_is_named() -> None:
    slices, alone = Slices("jobs", 1000), make_batch(1, [bytes(1000)])
    said = f"a message of {alone.size_bytes} bytes is more than the consumer's tunnel takes, 983"
    with pytest.raises(ConsumerCancelled, match=said):
        slices.add(0, 0, make_batch(0, [b"small", bytes(1000)]))
    assert payloads_of(slices.take()) == [b"small"]
