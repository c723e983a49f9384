"""The bytes on the disk, pinned: a change here is a new format version."""

from __future__ import annotations

from pathlib import Path

import pytest
from nacl.bindings import crypto_aead_aegis256_decrypt

from durable.log.bodies import (
    Missed,
    encode_acks,
    encode_dead_lettered,
    encode_definitions,
    gap_draft,
    move,
    seal_draft,
)
from durable.log.checkpoint import (
    HEADER,
    NO_DIGEST,
    CheckpointFile,
    FileKind,
    decode_checkpoint,
    directory_name,
    encode_checkpoint,
)
from durable.log.checkpoints import Checkpoint, Checkpoints, Root
from durable.log.cipher import Cipher
from durable.log.header import SegmentHeader, encode_segment_header, encode_store
from durable.log.memory_disk import MemoryDisk
from durable.log.record import (
    HEADER_BYTES,
    Draft,
    Header,
    Kind,
    Record,
    Target,
    encode_record,
    read_header,
    store_seed,
)
from durable.log.sparse_index import STRIDE_BYTES, Marks, decode_marks
from durable.log.store_keys import StoreKeys, decode_store_keys, encode_store_keys
from durable.vhost.cutting import cut_ranges, cut_settled
from durable.vhost.groups import (
    Front,
    GroupStretch,
    batches_in,
    encode_group,
    read_front,
    sequences_in,
)
from security.at_rest import wrap
from security.keys import derive
from tests.logs import NEW_SECRET, OLD_SECRET, PUBLISHER, STORE_ID, batch, following

MARKS = bytes.fromhex("000000000200000001000000020000004000000040000100")
"""Of the first log positions after 2^33."""
GOLDEN = Path(__file__).parents[3] / "golden"


CIPHER = Cipher(b"k" * 32, STORE_ID, encrypting=True, random_bytes=lambda size: b"r" * size)


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


def test_a_record() -> None:
    draft = Draft(Kind.PUBLISH, batch(5), (Target(7, 100), Target(8, 2**40)), 1_700_000_000_000_000)
    assert written(draft) == golden("record-v1.hex")


def test_an_encrypted_record() -> None:
    targets = (Target(7, 100), Target(8, 2**40))
    draft = Draft(Kind.PUBLISH, batch(5), targets, 1_700_000_000_000_000)
    assert written(CIPHER.encrypt(draft)) == golden("record-v2.hex")
    # What stands there, read as the text says and not as the code does.
    data = golden("record-v2.hex")
    associated = b"MREC" + STORE_ID + b"\x01" + data[48:56] + data[64:96]
    body = data[96 : 96 + int.from_bytes(data[12:16], "little")]
    plain = crypto_aead_aegis256_decrypt(body[32:], associated, body[:32], b"k" * 32)
    assert plain == draft.body
    header = read_header(data, 0, store_seed(STORE_ID))
    assert header is not None
    read = CIPHER.decrypt(Record(header, data[HEADER_BYTES:]))
    assert read is not None
    assert (read.body, read.targets) == (draft.body, targets)


def group(ttl_us: int | None) -> bytes:
    """A message, then two, of which one has headers, to another key."""
    parts = [(b"a", [b"one"], None), (b"b.c", [b"two", b"three"], [b"", b"\x80"])]
    batches = following(parts, 2**40, epoch=7, time_us=1_700_000_000_000_000)
    return encode_group(batches, ttl_us)


def test_a_group() -> None:
    lines = (GOLDEN / "group-v1.hex").read_text().split()
    assert [group(ttl_us).hex() for ttl_us in (None, 0, 1_000_000)] == lines
    assert read_front(group(0)) == Front(2, 3, 11, 7, 2**40, 0, PUBLISHER)
    found = batches_in(bytes.fromhex(lines[0]), 100, 0, 1000)
    assert [(one.topic, one.payloads, first) for one, first in found] == [
        ("a", [b"one"], 100), ("b.c", [b"two", b"three"], 101),
    ]  # fmt: skip


def spread(stretch: GroupStretch | None) -> bytes:
    """A message, and two behind a hole of three."""
    parts = [(b"a", [b"one"], None), (b"b.c", [b"two", b"three"], [b"", b"\x80"])]
    batches = following(parts, 2**40, epoch=7, time_us=1_700_000_000_000_000, holes=[0, 3])
    return encode_group(batches, 1_000_000, stretch, number=1)


def test_a_spread_group() -> None:
    """A line of record 1 of 2, one without a stretch."""
    stretch = GroupStretch(2**40 - 1, 9, 2)
    lines = (GOLDEN / "spread-v1.hex").read_text().split()
    assert [spread(one).hex() for one in (stretch, None)] == lines
    front = Front(2, 3, 11, 7, 2**40 - 1, 1_000_000, PUBLISHER, True, stretch, 1)
    assert read_front(spread(stretch)) == front
    for line in lines:
        body = bytes.fromhex(line)
        assert sequences_in(body, read_front(body)) == [(2**40, 2**40 + 1), (2**40 + 4, 2**40 + 6)]
        found = batches_in(body, 100, 0, 1000)
        assert [(one.topic, one.payloads, first) for one, first in found] == [
            ("a", [b"one"], 100), ("b.c", [b"two", b"three"], 101),
        ]  # fmt: skip


def test_a_record_with_a_spread_group() -> None:
    """As one with a group."""
    draft = _grouped(spread(GroupStretch(2**40 - 1, 9, 2)))._replace(spread=True)
    lines = (GOLDEN / "record-v4.hex").read_text().split()
    assert [written(one).hex() for one in _plain_encrypted_moved(draft)] == lines


def test_a_record_with_a_group() -> None:
    """A line in the plain, one encrypted, one moved."""
    lines = (GOLDEN / "record-v3.hex").read_text().split()
    assert [written(one).hex() for one in _plain_encrypted_moved(_grouped(group(None)))] == lines


def test_a_record_that_messages_were_cut_out_of() -> None:
    """Of three of 300 bytes the second is left: as salvaged, encrypted, and moved as compaction does."""
    payloads = [bytes([one]) * 300 for one in b"abc"]
    (whole,) = following([(b"t", payloads, None)], 2**40, epoch=7, time_us=1_700_000_000_000_000)
    cut = cut_settled(whole.raw(), [(0, 1), (2, 3)], captured=False)
    assert cut is not None
    assert cut_ranges(cut) == [(0, 1), (2, 3)]
    found = batches_in(cut, 100, 101, 102)
    assert [(one.payloads, first) for one, first in found] == [(payloads[1:2], 101)]
    draft = _grouped(cut)._replace(cut=True)
    lines = (GOLDEN / "record-v5.hex").read_text().split()
    assert [written(one).hex() for one in _plain_encrypted_moved(draft)] == lines


def _grouped(body: bytes) -> Draft:
    return Draft(Kind.PUBLISH, body, (Target(7, 100),), 1_700_000_000_000_000, grouped=True)


def _plain_encrypted_moved(draft: Draft) -> tuple[Draft, Draft, Draft]:
    plain = written(draft)
    header = read_header(plain, 0, store_seed(STORE_ID))
    assert header is not None
    moved = move(Record(header, plain[HEADER_BYTES:]), draft.targets)
    return draft, CIPHER.encrypt(draft), moved


def written(draft: Draft) -> bytes:
    pieces, _ = encode_record(
        draft, seed=store_seed(STORE_ID), epoch=3, position=2**33, chain=0x01020304, unsynced=2
    )
    return b"".join(pieces)


def test_the_keys_file() -> None:
    """Its first 264 bytes; the rest are zeros, and the same once more."""
    wrapped = {
        pair.key_id: wrap(CIPHER.data_key, pair, STORE_ID, nonce)
        for pair, nonce in (
            (derive(NEW_SECRET, "broker"), b"1" * 24),
            (derive(OLD_SECRET, "broker"), b"2" * 24),
        )
    }
    keys = StoreKeys(STORE_ID, "broker", wrapped)
    assert encode_store_keys(keys) == golden("keys-v1.hex").ljust(4096, b"\0") * 2
    assert decode_store_keys(encode_store_keys(keys)) == keys


def test_a_segment_header() -> None:
    header = SegmentHeader(STORE_ID, 12, 2**33, 0x01020304, 2**28, 1_700_000_000_000_000)
    assert encode_segment_header(header) == golden("segment-v1.hex")


def test_the_store_file() -> None:
    assert encode_store(STORE_ID, 1_700_000_000_000_000) == golden("store-v1.hex")


def test_checkpoint_files() -> None:
    digest, pair, position = bytes.fromhex(directory_name("jobs")), 0x01020304, 2**33
    found = [
        CheckpointFile(FileKind.ENQ, STORE_ID, digest, pair, position, 7, b"abc"),
        CheckpointFile(FileKind.ACK, STORE_ID, digest, pair, position, 7, b""),
        CheckpointFile(FileKind.ROOT, STORE_ID, NO_DIGEST, 0, position, 2**32, b"extra"),
        CheckpointFile(
            FileKind.ROOT, STORE_ID, NO_DIGEST, len(MARKS), position, 2**32, MARKS + b"extra"
        ),
    ]
    lines = (GOLDEN / "checkpoint-v1.hex").read_text().split()
    assert [b"".join(encode_checkpoint(one)).hex() for one in found] == lines
    assert [decode_checkpoint(bytes.fromhex(line)) for line in lines] == found


def test_marks_of_a_root() -> None:
    marks = Marks()
    for number in range(3):
        marks.add(2**33 + number, 64 + STRIDE_BYTES * number)
    assert marks.encode(2**33 + 1) == MARKS
    assert decode_marks(MARKS).encode(2**40) == MARKS
    files = Checkpoints(disk := MemoryDisk(), STORE_ID, lambda: 2**33 + 1)
    files.write_root(Root(2**33, 2**32, b"extra", MARKS))
    lines = (GOLDEN / "checkpoint-v1.hex").read_text().split()
    assert bytes(disk.open("checkpoint").pread(1000, 0)).hex() == lines[3]
    assert files.read_root() == Root(2**33, 2**32, b"extra", MARKS)


def test_an_encrypted_checkpoint_file() -> None:
    files = Checkpoints(disk := MemoryDisk(), STORE_ID, lambda: 2**33 + 1, CIPHER)
    files.write_root(Root(2**33, 2**32, b"extra"))
    assert bytes(disk.open("checkpoint").pread(1000, 0)) == golden("checkpoint-v2.hex")
    assert files.read_root() == Root(2**33, 2**32, b"extra")


@pytest.mark.parametrize("cipher", [None, CIPHER])
def test_an_enq_with_a_copy_of_its_ack(cipher: Cipher | None) -> None:
    files = Checkpoints(disk := MemoryDisk(), STORE_ID, lambda: 2**33, cipher)
    written = Checkpoint("jobs", 7, 2**33, b"abc", b"settled", ack_copied=True)
    files.write_all([written])
    data = bytes(
        disk.directory("queues").directory(directory_name("jobs")).open("enq").pread(1000, 0)
    )
    plain, encrypted = map(bytes.fromhex, (GOLDEN / "checkpoint-v3.hex").read_text().split())
    assert data == (encrypted if cipher else plain)
    assert plain[HEADER.size :] == b"abcsettled\x07\0\0\0"
    assert files.read("jobs", 7) == written


def test_bodies() -> None:
    header = Header(b"MREC", 1, Kind.PUBLISH, 0, 72, 3, 0, 0, 0, 0, 3, 2**33, 0, 0, 0)
    moved = move(Record(header, b"abc\0\0\0\0\0"), [Target(7, 100)])
    found = [
        encode_acks({7: [(1, 5), (9, 2**40)], 8: [(0, 1)]}),
        encode_definitions({"queue": "jobs", "id": 7}),
        bytes(moved.body),
        bytes(seal_draft(2**33, 17, 0).body),
        encode_acks({7: [(1, 5)]}, {7: [(6, 8)], 8: [(0, 1)]}),
        bytes(gap_draft(Missed(b"p" * 16, 3, "orders.eu", 2**33, 17), 7, 100, 0).body),
        encode_dead_lettered(7, 1, 5, 3),
    ]
    assert found == [bytes.fromhex(one) for one in (GOLDEN / "bodies-v1.hex").read_text().split()]
