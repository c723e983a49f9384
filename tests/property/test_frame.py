"""Frames against a decoder so slow and plain that it is obviously the layout in frame.py's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import RemoteProtocolError
from mesh.protocol.frame import Frame, Kind, pack_frame, pack_record

Plain = tuple[int, int, int, bytes]
"""(type, flags, id, body)."""

u64 = st.integers(0, 2**64 - 1)
kinds = st.one_of(st.sampled_from([int(kind) for kind in Kind]), st.integers(0x40, 0xFF))
records = st.lists(st.tuples(kinds, st.integers(0, 255), u64, st.binary(max_size=20)), max_size=6)
heads = st.tuples(st.sampled_from([0, 1]), u64, u64, u64)


def pack(head: tuple[int, int, int, int], given_records: list[Plain]) -> bytes:
    packed = [pack_record(kind, ident, body, flags) for kind, flags, ident, body in given_records]
    return pack_frame(*head, len(packed), packed)


def decode_slowly(raw: bytes) -> tuple[tuple[int, ...], list[Plain]] | None:
    """The text of frame.py, line by line; None where it says that the bytes are no frame."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(raw[at : at + size], "little")

    if len(raw) < 32 or raw[:2] != b"\xae\x01" or raw[2] > 1:
        return None
    at, found = 32, list[Plain]()
    for _ in range(number(4, 4)):
        if len(raw) - at < 16:
            return None
        kind, flags, length, ident = raw[at], raw[at + 1], number(at + 4, 4), number(at + 8, 8)
        at += 16
        if len(raw) - at < length or (kind < 0x40 and kind not in set(Kind)):
            return None
        if kind in set(Kind):
            found.append((kind, flags, ident, raw[at : at + length]))
        at += length
    if at != len(raw):
        return None
    return (raw[2], number(8, 8), number(16, 8), number(24, 8)), found


def decode(raw: bytes, *, view: bool = False) -> tuple[tuple[int, ...], list[Plain]] | None:
    try:
        frame = Frame(memoryview(raw) if view else raw)
    except RemoteProtocolError:
        return None
    found = [(kind, flags, ident, bytes(frame.data[a:b])) for kind, flags, ident, a, b in frame.records]  # fmt: skip
    return (frame.lane, frame.sequence, frame.ack_control, frame.ack_data), found


@given(heads, records, st.booleans())
def test_what_was_packed_comes_back(
    head: tuple[int, int, int, int], given_records: list[Plain], view: bool
) -> None:
    raw = pack(head, given_records)
    known = [record for record in given_records if record[0] < 0x40]
    assert decode(raw, view=view) == decode_slowly(raw) == (head, known)


@given(heads, records)
def test_no_part_of_a_frame_is_one(
    head: tuple[int, int, int, int], given_records: list[Plain]
) -> None:
    raw = pack(head, given_records)
    for size in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            Frame(raw[:size])
    with pytest.raises(RemoteProtocolError):
        Frame(raw + b"\x00")


changes = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@given(heads, records, changes, st.booleans())
def test_mutated_frames_agree_with_the_slow_decoder(
    head: tuple[int, int, int, int], given_records: list[Plain], changed: list[tuple[int, int]],
    view: bool,
) -> None:  # fmt: skip
    """Goal: RemoteProtocolError or the truth, never a crash, never bytes of a neighbour."""
    raw = bytearray(pack(head, given_records))
    for place, value in changed:
        raw[place % len(raw)] = value
    assert decode(bytes(raw), view=view) == decode_slowly(bytes(raw))


@given(st.binary(max_size=120), st.integers(0, 2))
def test_random_bytes_after_a_good_start_agree_too(tail: bytes, count: int) -> None:
    raw = b"\xae\x01\x00\x00" + count.to_bytes(4, "little") + bytes(24) + tail
    assert decode(raw) == decode_slowly(raw)
    with pytest.raises(RemoteProtocolError):
        Frame(tail)
