"""Records against a decoder so slow and plain that it is obviously the layout in record.py's text."""

from __future__ import annotations

from random import Random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durable.errors import RecordDamaged, StoreKeyMissing
from durable.log.bodies import (
    Missed,
    What,
    decode_acks,
    decode_gap,
    decode_moved,
    encode_acks,
    encode_dead_lettered,
    encode_definitions,
    gap_draft,
    move,
)
from durable.log.cipher import Cipher
from durable.log.record import Draft, Kind, Record, Target, encode_record, store_seed
from durable.log.scan import Damaged, Found, scan
from security.at_rest import OVERHEAD_BYTES

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
drafts = st.builds(
    Draft, st.sampled_from([Kind.PUBLISH, Kind.ACKS, Kind.DEFINITIONS]), st.binary(max_size=200),
    st.lists(st.builds(Target, u64, u64), max_size=3), u64, st.just(False), st.booleans(), st.booleans(),
)  # fmt: skip
store_ids = st.binary(min_size=16, max_size=16)


def version_of(draft: Draft) -> int:
    return 5 if draft.cut else 4 if draft.spread else 3 if draft.grouped else 0


def encode(draft: Draft, store_id: bytes, **changes: int) -> bytes:
    fields = {"epoch": 1, "position": 1, "chain": 0, "unsynced": 0} | changes
    return b"".join(encode_record(draft, seed=store_seed(store_id), **fields)[0])


def found_in(data: bytes, store_id: bytes, **limits: Any) -> list[Found | Damaged]:
    return list(
        scan(
            lambda size, at: data[at : at + size], 0, len(data), seed=store_seed(store_id), **limits
        )
    )


@given(drafts, store_ids, u64, st.integers(0, 2**64 - 2), u32, u32)
def test_a_record_reads_as_the_text_says(
    draft: Draft, store_id: bytes, epoch: int, position: int, chain: int, unsynced: int
) -> None:
    data = encode(draft, store_id, epoch=epoch, position=position, chain=chain, unsynced=unsynced)

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    assert data[:4] == b"MREC"
    version = version_of(draft) or 1
    flags = 2 * draft.grouped + 4 * draft.spread + 8 * draft.cut
    assert (number(4, 1), number(5, 1), number(6, 2)) == (version, draft.kind, flags)
    assert number(8, 4) == len(data) == draft.size_bytes
    assert (number(12, 4), number(16, 4)) == (len(draft.body), len(draft.targets))
    assert number(20, 4) == crc32(data[64:])
    assert (number(24, 4), number(28, 4)) == (chain, unsynced)
    assert (number(32, 8), number(40, 8), number(48, 8)) == (epoch, position, draft.time_us)
    assert number(56, 4) == 0
    assert number(60, 4) == crc32(data[:60], crc32(store_id))
    at = 64
    for target in draft.targets:
        assert (number(at, 8), number(at + 8, 8)) == target
        at += 16
    assert data[at : at + len(draft.body)] == draft.body
    assert not any(data[at + len(draft.body) :])
    assert len(data) % 8 == 0

    (found,) = found_in(data, store_id)
    assert isinstance(found, Found)
    assert (bytes(found.record.body), found.record.targets) == (draft.body, tuple(draft.targets))


@given(drafts, store_ids, st.data())
def test_no_bit_of_a_record_can_change(draft: Draft, store_id: bytes, data: st.DataObject) -> None:
    record = bytearray(encode(draft, store_id))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    assert not any(isinstance(one, Found) for one in found_in(bytes(record), store_id))


@given(drafts, store_ids, store_ids)
def test_records_of_another_store_are_none(draft: Draft, ours: bytes, theirs: bytes) -> None:
    found = found_in(encode(draft, theirs), ours)
    assert any(isinstance(one, Found) for one in found) == (ours == theirs)


@given(st.lists(st.one_of(drafts, st.binary(max_size=64)), max_size=8), store_ids, st.data())
def test_scan_finds_every_record_between_garbage(
    parts: list[Draft | bytes], store_id: bytes, data: st.DataObject
) -> None:
    """Oracle: what was put together. Garbage may hold the magic, and older records of this store."""
    old = encode(Draft(Kind.PUBLISH, b"old"), store_id, position=1)
    written, positions, position = b"", [], 2
    for part in parts:
        if isinstance(part, Draft):
            positions.append((position, len(written)))
            written += encode(part, store_id, position=position)
            position += 1
        else:
            garbage = data.draw(st.sampled_from([part, b"MREC" + part, old, bytes(72)]))
            written += garbage + bytes(-len(garbage) % 8)
    found = found_in(written, store_id, floor=2)
    assert [(one.record.position, one.at) for one in found if isinstance(one, Found)] == positions
    ends = [0, *(one.end for one in found)]
    assert all(one.at >= end for one, end in zip(found, ends, strict=False)), "in order"


@given(
    st.lists(
        st.one_of(drafts, st.integers(1, 30), st.sampled_from([b"MREC", b"dirt"])), max_size=9
    ),
    st.sampled_from([64, 72, 128, 1024]),
)
@example([b"MREC", 30], 64)
def test_small_windows_and_unwritten_ends_change_nothing(
    parts: list[Draft | int | bytes], window_bytes: int
) -> None:
    """Oracle: one window over everything, told nothing of what was never written."""
    written, position = b"", 1
    for part in parts:
        if isinstance(part, Draft):
            written += encode(part, b"x" * 16, position=position)
            position += 1
        else:
            written += bytes(8 * part) if isinstance(part, int) else part.ljust(8, b"\0")
    data_end = len(written.rstrip(b"\0"))
    found = found_in(written, b"x" * 16, window_bytes=window_bytes, data_end=data_end)
    assert found == found_in(written, b"x" * 16)


ranges = st.tuples(st.integers(0, 2**63), st.integers(1, 2**32)).map(lambda r: (r[0], r[0] + r[1]))


def record(draft: Draft) -> Record:
    (found,) = found_in(encode(draft, b"x" * 16, position=9), b"x" * 16)
    assert isinstance(found, Found)
    return found.record


by_queue = st.dictionaries(u64, st.lists(ranges, max_size=4), max_size=4)


@given(by_queue, by_queue)
def test_acks_come_back(
    settled: dict[int, list[tuple[int, int]]], returned: dict[int, list[tuple[int, int]]]
) -> None:
    found = decode_acks(record(Draft(Kind.ACKS, encode_acks(settled, returned))))
    assert {one.queue: one.ranges for one in found if one.what == What.SETTLED} == settled
    assert {one.queue: one.ranges for one in found if one.what == What.RETURNED} == returned


@given(u64, ranges, st.integers(0, 2**24 - 1))
def test_dead_letters_come_back(queue: int, span: tuple[int, int], copies: int) -> None:
    (found,) = decode_acks(record(Draft(Kind.ACKS, encode_dead_lettered(queue, *span, copies))))
    assert found == (queue, [span], What.DEAD_LETTERED, copies)


@given(
    st.builds(Missed, st.binary(min_size=16, max_size=16), u64, st.text(max_size=20), u64, u64),
    u64,
    u64,
)
def test_a_gap_comes_back(missed: Missed, lane: int, offset: int) -> None:
    found = record(gap_draft(missed, lane, offset, 0))
    assert (decode_gap(found), found.targets) == (missed, ((lane, offset),))


@given(st.binary(max_size=40) | st.lists(u64, max_size=6).map(encode_definitions))
def test_a_gap_that_is_none_is_damage(body: bytes) -> None:
    with pytest.raises(RecordDamaged, match="gap"):
        decode_gap(record(Draft(Kind.GAP, body, [Target(7, 0)])))


@given(
    st.binary(max_size=50),
    st.lists(st.builds(Target, u64, u64), max_size=3),
    st.sampled_from([Kind.PUBLISH, Kind.CAPTURE]),
    st.booleans(),
)
def test_a_record_moved_twice_keeps_its_time_and_first_place_and_kind(
    body: bytes, targets: list[Target], kind: Kind, grouped: bool
) -> None:
    once = move(record(Draft(kind, body, targets, 7, grouped=grouped)), targets)
    twice = move(record(once), targets[:1])
    assert once.time_us == twice.time_us == 7
    assert once.grouped == twice.grouped == grouped
    assert decode_moved(record(twice)) == (9, 1, body, kind)
    assert twice.targets == tuple(targets[:1])


keys = st.binary(min_size=32, max_size=32)


def cipher(key: bytes, store_id: bytes) -> Cipher:
    return Cipher(key, store_id, encrypting=True, random_bytes=Random(1).randbytes)


@given(drafts, store_ids, keys)
def test_an_encrypted_record_decrypts_to_what_was_appended(
    draft: Draft, store_id: bytes, key: bytes
) -> None:
    used = cipher(key, store_id)
    encrypted = used.encrypt(draft)
    assert encrypted.size_bytes - draft.size_bytes == OVERHEAD_BYTES
    assert len(draft.body) < 4 or bytes(draft.body) not in bytes(encrypted.body)
    data = encode(encrypted, store_id, position=9)
    version = version_of(draft) or 2
    flags = 1 + 2 * draft.grouped + 4 * draft.spread + 8 * draft.cut
    assert (data[4], data[6]) == (version, flags)
    (found,) = found_in(data, store_id, decrypt=used.decrypt)
    assert isinstance(found, Found)
    assert (bytes(found.record.body), found.record.targets) == (draft.body, tuple(draft.targets))
    assert (found.record.kind, found.end) == (draft.kind, len(data))
    assert not found.record.header.encrypted
    assert found.record.header.grouped == draft.grouped
    with pytest.raises(StoreKeyMissing, match="log position 9"):
        found_in(data, store_id)
    assert found_in(data, store_id, decrypt=cipher(bytes(32), store_id).decrypt) == (
        [found] if key == bytes(32) else [Damaged(0, len(data))]
    )


@given(drafts, store_ids, keys, st.data())
def test_whoever_can_repair_checksums_still_cannot_change_an_encrypted_record(
    draft: Draft, store_id: bytes, key: bytes, data: st.DataObject
) -> None:
    """Kind, time, targets and body belong together."""
    used = cipher(key, store_id)
    record = bytearray(encode(used.encrypt(draft), store_id))
    end = 64 + 16 * len(draft.targets) + len(draft.body) + OVERHEAD_BYTES
    at = data.draw(st.sampled_from([5, *range(48, 56)]) | st.integers(64, end - 1))
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    record[20:24] = crc32(record[64:]).to_bytes(4, "little")
    record[60:64] = crc32(record[:60], crc32(store_id)).to_bytes(4, "little")
    found = found_in(bytes(record), store_id, decrypt=used.decrypt)
    assert found == [Damaged(0, len(record))]


@given(
    st.lists(st.one_of(drafts, st.sampled_from([b"MREC", b"dirt", bytes(8)])), max_size=9),
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.sampled_from([64, 72, 128, 1024]),
)
def test_small_windows_change_nothing_in_a_mixed_log(
    parts: list[Draft | bytes], encrypted: list[bool], window_bytes: int
) -> None:
    used, written, appended = cipher(b"k" * 32, b"x" * 16), b"", []
    for part, encrypt in zip(parts, encrypted, strict=False):
        if isinstance(part, Draft):
            appended.append(part)
            written += encode(
                used.encrypt(part) if encrypt else part, b"x" * 16, position=len(appended)
            )
        else:
            written += part.ljust(8, b"\0")
    found = found_in(written, b"x" * 16, decrypt=used.decrypt, window_bytes=window_bytes)
    records = [one.record for one in found if isinstance(one, Found)]
    assert [(one.kind, bytes(one.body)) for one in records] == [(d.kind, d.body) for d in appended]
