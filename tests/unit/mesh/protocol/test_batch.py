from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import (
    COUNT_MAX,
    HEADER_BYTES,
    LOST,
    Batch,
    batch_pieces,
    encode_lost,
)
from tests.machines import ME, make_batch


def patched(batch: Batch, at: int, layout: str, value: int) -> bytes:
    raw = bytearray(batch.raw())
    struct.pack_into(layout, raw, at, value)
    return bytes(raw)


def test_reads_what_was_packed() -> None:
    pieces, size = batch_pieces(
        ME, 7, 41, -5, b"orders.eu", [b"a", b"", b"ccc"], shared_headers=b"\x80",
        message_headers=[b"", b"h", b""],
    )  # fmt: skip
    raw = b"".join(pieces)
    assert len(raw) == size
    batch = Batch(raw)
    assert (batch.publisher, batch.epoch, batch.base_sequence, batch.time_us) == (ME, 7, 41, -5)
    assert (batch.topic, batch.shared_headers) == ("orders.eu", b"\x80")
    assert batch.payloads == [b"a", b"", b"ccc"]
    assert batch.message_headers() == [b"", b"h", b""]
    assert (batch.next_sequence, batch.size_bytes) == (44, size)


@pytest.mark.parametrize("payloads", [[b"ab", b"cd"], [b"ab", b"c"], [b"", b""]])
@pytest.mark.parametrize("buffer", [bytes, memoryview])
def test_payloads_are_bytes_whatever_they_are_cut_from(
    payloads: list[bytes], buffer: Callable[[bytes], bytes]
) -> None:
    raw = b"<<" + make_batch(0, payloads).raw() + b">>"
    batch = Batch(buffer(raw), 2, len(raw) - 2)
    assert batch.payloads == payloads
    assert {type(payload) for payload in batch.payloads} == {bytes}
    assert type(batch.raw()) is bytes


def test_a_batch_without_headers_has_no_column() -> None:
    assert make_batch(0, [b"a"]).message_headers() is None


def test_lost_says_how_many_and_carries_none() -> None:
    batch = Batch(encode_lost(ME, 7, 41, 9, b"orders", 1 << 31))
    assert (batch.kind, batch.count, batch.next_sequence) == (LOST, 1 << 31, 41 + (1 << 31))
    assert batch.payloads == []
    assert batch.message_headers() is None
    batch.check()


@pytest.mark.parametrize(
    ("at", "layout", "value", "says"),
    [
        (0, "<H", 0x424E, "magic"),
        (2, "<B", 2, "version 2"),
        (3, "<B", 2, "kind 2"),
        (6, "<H", 60_000, "claims"),
        (8, "<I", 3, "claims 3"),
        (16, "<I", 0, "0 messages"),
        (16, "<I", 9, "claims"),
        (20, "<I", 1 << 31, "claims"),
    ],
)
def test_an_impossible_header_is_refused(at: int, layout: str, value: int, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        Batch(patched(make_batch(0, [b"abc", b"def"]), at, layout, value))


def test_more_messages_than_allowed_are_refused() -> None:
    count = COUNT_MAX + 1
    raw = bytearray(make_batch(0, [b""]).raw()[:HEADER_BYTES] + b"t" + bytes(4 * count))
    struct.pack_into("<I", raw, 8, len(raw))
    struct.pack_into("<I", raw, 16, count)
    with pytest.raises(RemoteProtocolError, match=f"{count} messages"):
        Batch(bytes(raw))


def test_shorter_than_a_header_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="63 bytes"):
        Batch(make_batch(0, [b"abc"]).raw()[:63])


def test_a_topic_that_is_no_text_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        Batch(patched(make_batch(0, [b"abc"]), HEADER_BYTES, "<B", 0xFF))


LENGTHS_AT = HEADER_BYTES + 1


@pytest.mark.parametrize("lengths", [(3, 4), (3, 2), (1 << 31, 3), (0xFFFFFFFF, 7)])
@pytest.mark.parametrize("headers", [None, [b"x", b"y"]])
def test_bodies_that_do_not_add_up_are_refused_before_anybody_reads_them(
    lengths: tuple[int, int], headers: list[bytes] | None
) -> None:
    raw = bytearray(make_batch(0, [b"abc", b"def"], headers=headers).raw())
    struct.pack_into("<II", raw, LENGTHS_AT, *lengths)
    batch = Batch(bytes(raw))
    for read in (batch.check, lambda: batch.payloads):
        with pytest.raises(RemoteProtocolError, match="do not add up"):
            read()


@pytest.mark.parametrize(("length", "says"), [(1 << 31, "add up"), (2, "add up"), (7, "add up")])
def test_headers_that_do_not_add_up_are_refused(length: int, says: str) -> None:
    raw = bytearray(make_batch(0, [b"abc"], headers=[b"h"]).raw())
    struct.pack_into("<I", raw, LENGTHS_AT + 4, length)
    batch = Batch(bytes(raw))
    for read in (batch.check, lambda: batch.payloads):
        with pytest.raises(RemoteProtocolError, match=says):
            read()


def test_a_headers_column_that_does_not_fit_is_refused() -> None:
    flagged = patched(make_batch(0, [b"", b"", b""]), 4, "<H", 1)
    batch = Batch(flagged)
    for read in (batch.check, batch.message_headers, lambda: batch.payloads):
        with pytest.raises(RemoteProtocolError, match="does not fit"):
            read()


def test_check_accepts_what_was_packed() -> None:
    for headers in (None, [b"", b"yy"]):
        batch = make_batch(0, [b"a", b"bc"], headers=headers)
        batch.check()
        assert batch.payloads == [b"a", b"bc"]
        assert batch.message_headers() == headers
