"""The bytes on the disk, pinned: a change here is a new format version."""

from __future__ import annotations

from pathlib import Path

from durable.log.bodies import (
    Missed,
    encode_acks,
    encode_definitions,
    encode_moved_on,
    gap_draft,
    move,
    seal_draft,
)
from durable.log.checkpoint import (
    NO_DIGEST,
    CheckpointFile,
    FileKind,
    decode_checkpoint,
    encode_checkpoint,
    name_digest,
)
from durable.log.header import SegmentHeader, encode_segment_header, encode_store
from durable.log.record import Draft, Header, Kind, Record, Target, encode_record, store_seed
from tests.logs import STORE_ID, batch

GOLDEN = Path(__file__).parents[3] / "golden"


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


def test_a_record() -> None:
    draft = Draft(Kind.PUBLISH, batch(5), (Target(7, 100), Target(8, 2**40)), 1_700_000_000_000_000)
    pieces, _ = encode_record(
        draft, seed=store_seed(STORE_ID), epoch=3, position=2**33, chain=0x01020304, unsynced=2
    )
    assert b"".join(pieces) == golden("record-v1.hex")


def test_a_segment_header() -> None:
    header = SegmentHeader(STORE_ID, 12, 2**33, 0x01020304, 2**28, 1_700_000_000_000_000)
    assert encode_segment_header(header) == golden("segment-v1.hex")


def test_the_store_file() -> None:
    assert encode_store(STORE_ID, 1_700_000_000_000_000) == golden("store-v1.hex")


def test_checkpoint_files() -> None:
    digest, pair, position = name_digest("jobs"), 0x01020304, 2**33
    found = [
        CheckpointFile(FileKind.ENQ, STORE_ID, digest, pair, position, 7, b"abc"),
        CheckpointFile(FileKind.ACK, STORE_ID, digest, pair, position, 7, b""),
        CheckpointFile(FileKind.ROOT, STORE_ID, NO_DIGEST, 0, position, 2**32, b"extra"),
    ]
    lines = (GOLDEN / "checkpoint-v1.hex").read_text().split()
    assert [b"".join(encode_checkpoint(one)).hex() for one in found] == lines
    assert [decode_checkpoint(bytes.fromhex(line)) for line in lines] == found


def test_bodies() -> None:
    header = Header(b"MREC", 1, Kind.PUBLISH, 0, 72, 3, 0, 0, 0, 0, 3, 2**33, 0, 0, 0)
    moved = move(Record(header, b"abc\0\0\0\0\0"), [Target(7, 100)], 0)
    found = [
        encode_acks({7: [(1, 5), (9, 2**40)], 8: [(0, 1)]}),
        encode_definitions({"queue": "jobs", "id": 7}),
        bytes(moved.body),
        bytes(seal_draft(2**33, 17, 0).body),
        encode_acks({7: [(1, 5)]}, {7: [(6, 8)], 8: [(0, 1)]}),
        bytes(gap_draft(Missed(b"p" * 16, 3, "orders.eu", 2**33, 17), 7, 100, 0).body),
        encode_moved_on(7, 1, 5, 3),
    ]
    assert found == [bytes.fromhex(one) for one in (GOLDEN / "bodies-v1.hex").read_text().split()]
