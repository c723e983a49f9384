"""Listings: what was put in comes out, a little at a time; anything else is Malformed."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import Malformed
from durable.protocol import listing
from durable.protocol.listing import Listing, merge_listing, read_listing
from mesh.errors import TooLarge

names = st.text(max_size=3)
parts = st.lists(st.dictionaries(names, st.lists(st.integers(0, 9)) | names), max_size=5)


def made(some: list[dict[str, Any]]) -> bytes:
    found = Listing()
    for one in some:
        found.add(one)
    return found.finish()


@given(parts, st.integers(1, 50))
def test_listings_come_back(some: list[dict[str, Any]], decompressed_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "DECOMPRESSED_BYTES", decompressed_bytes)
        assert list(read_listing(made(some))) == some


def test_the_bytes_of_a_listing() -> None:
    some: list[dict[str, Any]] = [{"queues": {"jobs": 1}}, {"hidden": 0}]
    assert zlib.decompress(made(some)) == bytes.fromhex(
        "0f00000081a671756575657381a46a6f6273010900000081a668696464656e00"
    )


def test_what_comes_next_stands_behind_what_came_before() -> None:
    whole: dict[str, Any] = {}
    for some in (
        {"queues": {"a": 1}, "bindings": [1], "hidden": 3},
        {"queues": {"b": 2}, "bindings": [2, 3]}, {"hidden": 4, "log": {}},
    ):  # fmt: skip
        merge_listing(whole, some)
    assert whole == {"queues": {"a": 1, "b": 2}, "bindings": [1, 2, 3], "hidden": 4, "log": {}}
    assert list(whole["queues"]) == ["a", "b"]


def test_more_than_anybody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [{"queues": ["jobs"] * 10}] * 5
    size_bytes = sum(4 + len(msgpack.packb(one)) for one in some)
    monkeypatch.setattr(listing, "BYTES_MAX", size_bytes)
    whole = made(some)
    assert list(read_listing(whole)) == some
    monkeypatch.setattr(listing, "BYTES_MAX", size_bytes - 1)
    with pytest.raises(TooLarge, match=f"listing of {size_bytes} bytes .* {size_bytes - 1} bytes"):
        made(some)
    with pytest.raises(Malformed, match=f"longer than {size_bytes - 1} bytes"):
        list(read_listing(whole))


@pytest.mark.parametrize(
    "data",
    [
        None, {}, b"", b"queues", made([{"queues": 1}])[:-1],
        *(
            zlib.compress(bytes.fromhex(one))
            for one in ("00", "01000000", "0200000080", "020000009101", "01000000c1", "03000000810101")
        ),
    ],
)  # fmt: skip
def test_what_is_no_listing_is_malformed(data: Any) -> None:
    with pytest.raises(Malformed, match="a listing"):
        list(read_listing(data))


@given(st.binary(max_size=30))
def test_garbage_is_malformed_and_nothing_else(data: bytes) -> None:
    for one in (data, zlib.compress(data)):
        with suppress(Malformed):
            list(read_listing(one))
