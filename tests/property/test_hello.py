"""Greetings made of anything msgpack can say: what is accepted has the right types and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import RemoteProtocolError
from mesh.protocol.hello import (
    Hello,
    Limits,
    Welcome,
    decode_announcements,
    decode_hello,
    decode_welcome,
    encode_announcements,
)
from mesh.protocol.values import TEXT_BYTES_MAX, clip, decode_values, encode_values

numbers = st.integers(-(2**63), 2**64 - 1)
names = st.lists(st.text(max_size=8), max_size=3)
ids = st.binary(min_size=16, max_size=16)
positive = st.integers(1, 2**64 - 1)

limits = st.builds(
    Limits, window=positive, frame_max=positive, record_max=positive, reassembly_max=positive
)
hellos = st.builds(
    Hello, lane=st.sampled_from([0, 1]), node=ids, target=ids, link_id=ids, resume=st.booleans(),
    expects=positive, limits=limits,
    announcement=st.binary(max_size=50), idempotent=names.map(tuple),
)  # fmt: skip
welcomes = st.builds(
    Welcome, lane=st.sampled_from([0, 1]), node=ids, link_id=ids, expects=positive,
    limits=limits, announcement=st.binary(max_size=50),
    idempotent=names.map(tuple),
)  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    ids,
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=12), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(hellos, welcomes, st.lists(st.binary(max_size=30), max_size=32))
def test_greetings_come_back_as_they_were(
    hello: Hello, welcome: Welcome, announcements: list[bytes]
) -> None:
    assert decode_hello(hello.encode()) == hello
    assert decode_welcome(welcome.encode()) == welcome
    assert decode_announcements(encode_announcements(announcements)) == announcements


DECODERS: list[Callable[[bytes], Any]] = [
    decode_hello, decode_welcome, decode_announcements,
    lambda body: decode_values(body, "X", (str, int, bool)),
]  # fmt: skip


def accepted_is_right(body: bytes) -> None:
    for decode in DECODERS:
        try:
            value = decode(body)
        except RemoteProtocolError:
            continue
        if isinstance(value, Hello | Welcome):
            assert decode(value.encode()) == value
            assert (len(value.node), len(value.link_id)) == (16, 16)
            assert value.lane in (0, 1)
            assert min(value.expects, *value.limits.fields()) >= 1
            assert all(type(name) is str for name in value.idempotent)
        else:
            assert all(type(one) in (bytes, str, int, bool) for one in value)


@given(st.lists(st.one_of(scalars, anything), max_size=12))
def test_arrays_of_anything(fields: list[Any]) -> None:
    accepted_is_right(msgpack.packb(fields))


@given(hellos, st.integers(0, 8), anything)
def test_one_field_of_anything(hello: Hello, place: int, value: Any) -> None:
    fields = msgpack.unpackb(hello.encode())
    fields[place] = value
    accepted_is_right(msgpack.packb(fields))


@given(st.one_of(hellos.map(Hello.encode), welcomes.map(Welcome.encode)), st.data())
def test_mutated_and_cut_greetings(raw: bytes, data: st.DataObject) -> None:
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    accepted_is_right(bytes(changed[: data.draw(st.integers(0, len(raw)))]))
    accepted_is_right(bytes(changed))


nesting = st.sampled_from(
    [b"\x91", b"\x92", b"\x81\xa1k", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"]
)
bombs = st.one_of(
    st.tuples(nesting, st.integers(1, 5000)).map(lambda pair: pair[0] * pair[1]),
    st.tuples(st.sampled_from([0xC6, 0xC9, 0xDB, 0xDD, 0xDF]), st.binary(min_size=4, max_size=40))
    .map(lambda pair: bytes([0x91, pair[0]]) + pair[1]),
    st.binary(max_size=400),
)  # fmt: skip


@given(bombs)
def test_bombs(raw: bytes) -> None:
    accepted_is_right(raw)


@given(st.one_of(st.text(), st.text(st.characters(codec=None), max_size=3000)))
def test_any_text_arrives_as_far_as_it_may(text: str) -> None:
    (arrived,) = decode_values(encode_values(clip(text)), "ERROR", (str,))
    whole = text.encode(errors="replace").decode()
    assert whole.startswith(arrived)
    assert arrived == whole or TEXT_BYTES_MAX - 4 < len(arrived.encode()) <= TEXT_BYTES_MAX


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33])
def test_the_number_of_announcements(count: int) -> None:
    body = encode_announcements([b"a"] * count)
    if count <= 32:
        assert len(decode_announcements(body)) == count
    else:
        with pytest.raises(RemoteProtocolError):
            decode_announcements(body)
