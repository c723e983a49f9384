"""Goal: what was packed comes back; anything else is refused with RemoteProtocolError, never a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import LOST, Batch, batch_pieces, encode_lost
from mesh.protocol.frame import DATA, MORE, Frame, Kind, pack_frame, pack_record
from mesh.protocol.hello import (
    Hello,
    Limits,
    Welcome,
    decode_announcements,
    decode_hello,
    decode_welcome,
    encode_announcements,
)
from mesh.protocol.request import MAY_BE_BUSY, REPLY_PREFIX, pack_head, read_head
from security.announcement import Announcement, Endpoint, read_announcement
from security.errors import BadAnnouncement
from security.keyring import NetworkKeyring
from security.keys import derive

GOLDEN = Path(__file__).parent.parent / "golden"
ME = bytes(range(16))
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


def pack(payloads: list[bytes], **options: Any) -> bytes:
    pieces, size = batch_pieces(
        ME, 7, 1000, 1_700_000_000_000_000, b"orders.eu", payloads, **options
    )
    data = b"".join(pieces)
    assert len(data) == size
    return data


@given(bodies, st.booleans(), st.binary(max_size=20), st.binary(max_size=20), st.booleans())
def test_batch_round_trip(
    payloads: list[bytes], with_headers: bool, before: bytes, after: bytes, as_view: bool
) -> None:
    headers = [bytes([n % 7]) * (n % 3) for n in range(len(payloads))] if with_headers else None
    data = pack(payloads, message_headers=headers, shared_headers=b"shared")
    around = before + data + after
    buffer = memoryview(around) if as_view else around
    batch = Batch(buffer, len(before), len(before) + len(data))
    assert batch.payloads == payloads
    assert batch.message_headers() == headers
    assert (batch.publisher, batch.epoch, batch.base_sequence) == (ME, 7, 1000)
    assert (batch.topic, batch.shared_headers, batch.next_sequence) == ("orders.eu", b"shared", 1000 + len(payloads))  # fmt: skip
    assert batch.raw() == data


@given(bodies, st.data())
def test_a_mutated_or_cut_batch_is_refused_or_still_adds_up(
    payloads: list[bytes], data: st.DataObject
) -> None:
    raw = bytearray(pack(payloads))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        batch = Batch(bytes(raw))
        got = batch.payloads
    except RemoteProtocolError:
        return
    assert batch.kind == LOST or sum(map(len, got)) <= len(raw)


def test_golden_batches() -> None:
    whole, lost = map(bytes.fromhex, (GOLDEN / "batch-v1.hex").read_text().split())
    headers = [b"", b"\x81\xa1k\x01", b""]
    payloads = [b"one", b"", b"three"]
    assert pack(payloads, shared_headers=b"\x80", message_headers=headers) == whole
    assert encode_lost(ME, 7, 1000, 1_700_000_000_000_000, b"orders.eu", 42) == lost
    assert (Batch(lost).kind, Batch(lost).count, Batch(lost).payloads) == (LOST, 42, [])


kinds = st.sampled_from(list(Kind))
records = st.lists(st.tuples(kinds, st.integers(0, 2**64 - 1), st.binary(max_size=60)), max_size=8)


@given(records, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_frame_round_trip(
    given_records: list[tuple[Kind, int, bytes]], sequence: int, control: int, data: int
) -> None:
    packed = [pack_record(kind, ident, body) for kind, ident, body in given_records]
    frame = Frame(pack_frame(DATA, sequence, control, data, len(packed), packed))
    assert (frame.lane, frame.sequence, frame.ack_control, frame.ack_data) == (DATA, sequence, control, data)  # fmt: skip
    found = [(kind, ident, bytes(frame.data[a:b])) for kind, _, ident, a, b in frame.records]
    assert found == given_records


@given(records, st.data())
def test_mutated_frames_are_refused_or_well_formed(
    given_records: list[tuple[Kind, int, bytes]], data: st.DataObject
) -> None:
    packed = [pack_record(kind, ident, body) for kind, ident, body in given_records]
    raw = bytearray(pack_frame(DATA, 1, 0, 0, len(packed), packed))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = Frame(bytes(raw))
    except RemoteProtocolError:
        return
    assert all(0 <= start <= end <= len(raw) for *_, start, end in frame.records)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_frame(raw: bytes) -> None:
    try:
        frame = Frame(raw)
    except RemoteProtocolError:
        return
    assert raw[:2] == b"\xae\x01"
    assert frame.data is raw


def test_golden_frame() -> None:
    golden = bytes.fromhex((GOLDEN / "frame-v1.hex").read_text())
    parts = [
        pack_record(Kind.REQUEST, 5, b"body"),
        pack_record(Kind.TUNNEL_DATA, 6, b"piece", MORE),
    ]
    assert pack_frame(DATA, 9, 3, 4, 2, parts) == golden


def test_unknown_records_from_0x40_are_skipped_and_others_refused() -> None:
    odd = pack_record(0x41, 1, b"from the future")
    frame = Frame(pack_frame(DATA, 1, 0, 0, 2, [odd, pack_record(Kind.REPLY, 2, b"")]))
    assert [record[0] for record in frame.records] == [Kind.REPLY]
    with pytest.raises(RemoteProtocolError, match="unknown type"):
        Frame(pack_frame(DATA, 1, 0, 0, 1, [pack_record(0x3F, 1, b"")]))


LIMITS = Limits(window=1 << 22, frame_max=1 << 18, record_max=1, reassembly_max=1)
HELLO = Hello(
    lane=1, node=ME, target=ME, link_id=ME, resume=False, expects=1, limits=LIMITS,
    announcement=b"a", idempotent=("x/y",),
)  # fmt: skip
WELCOME = Welcome(lane=0, node=ME, link_id=ME, expects=9, limits=LIMITS, announcement=b"")


def test_hello_and_welcome_round_trip() -> None:
    assert decode_hello(HELLO.encode()) == HELLO
    assert decode_welcome(WELCOME.encode()) == WELCOME
    assert decode_announcements(encode_announcements([b"a", b"b"])) == [b"a", b"b"]


def test_golden_greetings() -> None:
    hello, welcome, introduced = map(bytes.fromhex, (GOLDEN / "hello-v1.hex").read_text().split())
    assert (HELLO.encode(), WELCOME.encode()) == (hello, welcome)
    assert encode_announcements([b"a", b"b"]) == introduced
    assert (decode_hello(hello), decode_welcome(welcome)) == (HELLO, WELCOME)


def test_golden_request() -> None:
    request, reply = map(bytes.fromhex, (GOLDEN / "request-v1.hex").read_text().split())
    assert pack_head("databases", "get", 1500, MAY_BE_BUSY) + b"body" == request
    assert read_head(request, 0, len(request)) == ("databases", "get", len(request) - 4, 1500, 1)
    assert REPLY_PREFIX.pack(2500, 3) + b"body" == reply


@given(st.one_of(st.binary(max_size=300), st.integers(0, 200).map(lambda n: b"\x91" * n)))
def test_greetings_survive_anything(raw: bytes) -> None:
    for decode in (decode_hello, decode_welcome, decode_announcements):
        try:
            decode(raw)
        except RemoteProtocolError:
            continue


KEYS = derive(bytes(range(32)), "databases")
RING = NetworkKeyring([bytes(range(32))])


def announcement(**changes: object) -> Announcement:
    fields: dict[str, object] = {
        "node": ME, "incarnation": 1, "issued_us": 2, "lifetime_s": 600, "host": b"hosthost",
        "clusters": ("databases",),
        "endpoints": (Endpoint("tcp://10.0.0.5:7400", KEYS.key_id),), **changes,
    }  # fmt: skip
    return Announcement(**fields)  # type: ignore[arg-type]


def test_golden_announcement() -> None:
    golden = bytes.fromhex((GOLDEN / "announcement-v2.hex").read_text())
    assert announcement().sign([KEYS]) == golden
    assert read_announcement(golden, RING, now_us=3) == announcement()


@given(st.data())
def test_an_altered_announcement_is_never_believed(data: st.DataObject) -> None:
    raw = bytearray(announcement().sign([KEYS]))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadAnnouncement):
        read_announcement(bytes(raw), RING, now_us=3)


@given(st.one_of(st.binary(max_size=5000), st.integers(0, 3000).map(lambda n: b"\x02\xff\x0f" + b"\x91" * n)))  # fmt: skip
def test_random_bytes_are_no_announcement(raw: bytes) -> None:
    with pytest.raises(BadAnnouncement):
        read_announcement(raw, RING, now_us=3)
