from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.frame import (
    CONTROL,
    DATA,
    FRAME_BYTES,
    MORE,
    RECORD_BYTES,
    Frame,
    Kind,
    pack_frame,
    pack_record,
)


def packed(*records: bytes, lane: int = DATA, sequence: int = 1) -> bytes:
    return pack_frame(lane, sequence, 2, 3, len(records), list(records))


@pytest.mark.parametrize("buffer", [bytes, memoryview])
def test_reads_what_was_packed(buffer: Callable[[bytes], bytes]) -> None:
    raw = packed(
        pack_record(Kind.REQUEST, 5, b"body"), pack_record(Kind.TUNNEL_DATA, 1 << 63, b"", MORE)
    )
    frame = Frame(buffer(raw))
    assert (frame.lane, frame.sequence, frame.ack_control, frame.ack_data) == (DATA, 1, 2, 3)
    body_at = FRAME_BYTES + RECORD_BYTES
    assert frame.records == [
        (Kind.REQUEST, 0, 5, body_at, body_at + 4),
        (Kind.TUNNEL_DATA, MORE, 1 << 63, len(raw), len(raw)),
    ]
    assert frame.data[body_at : body_at + 4] == b"body"


def test_a_frame_may_have_no_records() -> None:
    assert Frame(packed(lane=CONTROL, sequence=0)).records == []


def test_records_of_the_future_are_skipped_and_what_follows_is_read() -> None:
    frame = Frame(packed(pack_record(0x40, 1, b"new"), pack_record(Kind.REPLY, 2, b"old")))
    assert [(kind, ident) for kind, _, ident, _, _ in frame.records] == [(Kind.REPLY, 2)]


@pytest.mark.parametrize("kind", [0, 0x3F, 12, 23])
def test_an_unknown_record_that_may_not_be_skipped_is_refused(kind: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"unknown type {kind}"):
        Frame(packed(pack_record(kind, 1, b"")))


COUNT_AT, LENGTH_AT = 4, FRAME_BYTES + 4


@pytest.mark.parametrize(
    ("at", "layout", "value", "says"),
    [
        (0, "<B", 0xAF, "magic 0xaf"),
        (1, "<B", 2, "version 2"),
        (2, "<B", 2, "lane 2"),
        (COUNT_AT, "<I", 0, "36 bytes after its records"),
        (COUNT_AT, "<I", 2, "ends inside a record header"),
        (COUNT_AT, "<I", 3, "claims 3 records"),
        (COUNT_AT, "<I", 0xFFFFFFFF, "claims 4294967295 records"),
        (LENGTH_AT, "<I", 19, "1 bytes after its records"),
        (LENGTH_AT, "<I", 21, "record of 21 bytes, 20 left"),
        (LENGTH_AT, "<I", 0xFFFFFFFF, "record of 4294967295 bytes"),
    ],
)
def test_an_impossible_header_is_refused(at: int, layout: str, value: int, says: str) -> None:
    raw = bytearray(packed(pack_record(Kind.REPLY, 1, bytes(20))))
    struct.pack_into(layout, raw, at, value)
    with pytest.raises(RemoteProtocolError, match=says):
        Frame(bytes(raw))


@pytest.mark.parametrize("size", range(FRAME_BYTES))
def test_shorter_than_a_header_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="shorter than its header"):
        Frame(packed()[:size])


def test_kinds_have_the_numbers_they_always_had() -> None:
    """Goal: nobody renumbers. Two releases must understand each other."""
    numbers = {
        "HELLO": 1, "WELCOME": 2, "REFUSE": 3, "INTRODUCE": 4, "INTRODUCED": 5, "BYE": 6,
        "HEARTBEAT": 7, "GOSSIP": 8, "SUBSCRIBE": 9, "UNSUBSCRIBE": 10, "CREDIT": 11, "BATCH": 16,
        "BROADCAST": 17, "REQUEST": 18, "REPLY": 19, "ERROR": 20, "BUSY": 21, "CANCEL": 22,
        "TUNNEL_OPEN": 24, "TUNNEL_ACCEPT": 25, "TUNNEL_DATA": 26, "TUNNEL_EOF": 27,
        "TUNNEL_CREDIT": 28, "TUNNEL_STOP": 29, "TUNNEL_RESET": 30, "TUNNEL_BLOCKED": 31,
    }  # fmt: skip
    assert {kind.name: int(kind) for kind in Kind} == numbers
