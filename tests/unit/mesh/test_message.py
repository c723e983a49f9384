"""Headers, as a peer may send them."""

from __future__ import annotations

import msgpack
import pytest

from durable.client.message_checks import HEADERS_BYTES_MAX
from mesh.message import NO_HEADERS, READ_BYTES_MAX, decode_headers, encode_headers


def test_the_longest_headers_that_anybody_sends_are_read() -> None:
    headers = {"a": b"x" * (HEADERS_BYTES_MAX - 10)}
    assert decode_headers(encode_headers(headers, HEADERS_BYTES_MAX)) == headers


def test_found_headers_of_any_length_were_read_and_took_70_times_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = msgpack.packb({"a": [[]] * READ_BYTES_MAX})
    monkeypatch.setattr(msgpack, "unpackb", lambda raw: pytest.fail("it is read"))
    assert decode_headers(raw) is NO_HEADERS


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x93\x01", b"\x91" * 5000, msgpack.packb([1])])
def test_what_is_no_headers_is_none(raw: bytes) -> None:
    assert decode_headers(raw) is NO_HEADERS
