"""Definitions as they travel: entry by entry they are what they are at once, and garbage is Malformed."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durable.errors import InvalidDefinition, Malformed
from durable.protocol.definition_bytes import pack_definitions, unpack_definitions

texts = st.text(max_size=10)
plain = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=30,
)
whole = plain | st.dictionaries(texts, plain, max_size=20)


@given(whole)
@example({"queues": [{}] * 20, "bindings": [[]] * 70_000, "vhost": "/"})
def test_definitions_come_back(value: Any) -> None:
    assert unpack_definitions(pack_definitions(value)) == value


@pytest.mark.parametrize(
    ("given_one", "where"),
    [
        ({5: []}, "definitions"),
        ({"queues": [{"name": "jobs"}, {"name": "news", 5: True}]}, "queues[1]"),
        ({"bindings": [{"arguments": {5: "all"}}]}, "bindings[0].arguments"),
        ([(({5: 1},),)], "[0][0][0]"),
    ],
)
def test_a_key_that_is_no_text_is_named_before_it_travels(given_one: Any, where: str) -> None:
    """Found: the broker's answer was that the other end does not speak our protocol."""
    with pytest.raises(InvalidDefinition) as caught:
        pack_definitions(given_one)
    assert str(caught.value) == f"{where}: a field's name is 5: want text"


@given(st.binary(max_size=30) | whole.map(msgpack.packb).map(lambda one: one[:-1]))
@example(b"")
@example(b"\x81\xa1q")  # A map that ends before what it has.
@example(b"\x81\xa1q\xdd\xff\xff\xff\xff")  # A list of four thousand million.
@example(b"\x81\x90\x90")  # A list as a name.
@example(b"\x80\x80")  # Two of them.
def test_garbage_is_malformed_and_nothing_else(packed: bytes) -> None:
    with suppress(Malformed):
        unpack_definitions(zlib.compress(packed))


@pytest.mark.parametrize("packed", [b"\x80\x80", b"\x81\xa1q", b"\x81\xa1q\x92\x01", b""])
def test_what_is_cut_or_goes_on_is_none(packed: bytes) -> None:
    with pytest.raises(Malformed):
        unpack_definitions(zlib.compress(packed))
