"""The bodies of records, as bytes.

Layouts, little endian, version 1 (pinned by tests/golden/bodies-v1.hex):

    publish      one batch of mesh/protocol/batch.py, byte for byte as it was received; the record's
                 checksum covers it. Or several of them, see vhost/groups.py
    capture      the same, published on the mesh and not to the broker: its sequences are its topic's
    acks         blocks, one after the other: u64 queue id, u32 count of ranges, u32 what, then `count`
                 pairs of u64: first sequence and the one after the last.
                 what: 0 settled; 1 returned: delivered once more than before; 2 + 256 n: settled if
                 the n records right before this one, which are copies of them elsewhere, exist
    definitions  one msgpack value, whose meaning is the broker's
    moved        u64 log position and 7 bytes of epoch that the record had before compaction, u8 its
                 kind (0: publish), then its body
    seal         u64 log position of the segment's first record, u64 count of its records
    gap          one msgpack array: publisher (16 bytes), epoch, topic, first sequence, count: messages of
                 a publisher that a stream missed. Its target is the stream's lane and the offset of the
                 next message; the gap itself takes no offset

A seal is the last record of a segment: nothing behind it in that file counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from security.unpacking import UNPACK_ERRORS

from ..errors import RecordDamaged
from .record import Buffer, Draft, Kind, Record, Target

ACKS_BLOCK = struct.Struct("<QII")
RANGE = struct.Struct("<QQ")
ORIGIN = struct.Struct("<QQ")
SEAL = struct.Struct("<QQ")
PUBLISHER_BYTES = 16
WHAT_BITS = 8
WHAT_MASK = (1 << WHAT_BITS) - 1
EPOCH_BITS = 56
"""Bits for the epoch in a moved record: with one start per microsecond they last for 2,000 years."""
EPOCH_MASK = (1 << EPOCH_BITS) - 1

MESSAGES = (Kind.PUBLISH, Kind.CAPTURE, Kind.MOVED)
"""Kinds of records that hold a batch, or a group of batches."""

Span = tuple[int, int]
"""First sequence, and the one after the last."""


class Moved(NamedTuple):
    """A record that compaction carried forward."""

    position: int
    """Its log position before."""
    epoch: int
    body: Buffer
    kind: int
    """Its former kind: a Kind, or one that this version does not know."""


class What(IntEnum):
    """What happened to the messages of an acks block."""

    SETTLED = 0
    RETURNED = 1
    """Delivered and given back: this counts as one delivery more."""
    DEAD_LETTERED = 2
    """Settled, because the records right before this one have their copies; void if those records are missing. A
    power cut may keep the end of a commit without its beginning."""


class Acks(NamedTuple):
    """One block of a record of acks."""

    queue: int
    ranges: list[Span]
    what: int = What.SETTLED
    """A What, or one that this version does not know."""
    copies: int = 0
    """For DEAD_LETTERED: how many records right before this one are the copies."""


class Missed(NamedTuple):
    """Messages of one publisher that a stream should have captured, but did not."""

    publisher: bytes
    epoch: int
    topic: str
    first: int
    """The publisher's sequence."""
    messages: int


def encode_acks(
    settled: Mapping[int, Sequence[Span]], returned: Mapping[int, Sequence[Span]] | None = None
) -> bytes:
    """Return the body for ranges of sequences by queue id."""
    return b"".join(encode_acks_in_parts(settled, returned or {}, 1 << 32))


def encode_acks_in_parts(
    settled: Mapping[int, Sequence[Span]], returned: Mapping[int, Sequence[Span]], bytes_max: int
) -> Iterator[bytes]:
    """Yield the same as bodies of several records, each of at most `bytes_max`, or of one range."""
    pieces: list[bytes] = []
    left = bytes_max
    for what, acks in ((What.SETTLED, settled), (What.RETURNED, returned)):
        for queue, ranges in acks.items():
            at = 0
            while at < max(1, len(ranges)):
                fitting = (left - ACKS_BLOCK.size) // RANGE.size
                if fitting < 1 and pieces:
                    yield b"".join(pieces)
                    pieces, left = [], bytes_max
                    continue
                some = ranges[at : at + max(1, fitting)]
                at += max(1, len(some))
                pieces.append(ACKS_BLOCK.pack(queue, len(some), what))
                pieces += [RANGE.pack(start, end) for start, end in some]
                left -= ACKS_BLOCK.size + RANGE.size * len(some)
    if pieces:
        yield b"".join(pieces)


def acks_bytes(ranges: int) -> int:
    """Return how many bytes this number of ranges of one queue takes in a body."""
    return ACKS_BLOCK.size + RANGE.size * ranges


def encode_dead_lettered(queue: int, start: int, end: int, copies: int) -> bytes:
    """Return a body that settles sequences [start, end), if the `copies` records right before this one exist."""
    what = What.DEAD_LETTERED + (copies << WHAT_BITS)
    return ACKS_BLOCK.pack(queue, 1, what) + RANGE.pack(start, end)


def decode_acks(record: Record) -> list[Acks]:
    """Return the blocks in the order in which they were written. Raises RecordDamaged."""
    body, at = record.body, 0
    acks: list[Acks] = []
    while at < len(body):
        if len(body) - at < ACKS_BLOCK.size:
            raise RecordDamaged("acks", record.position)
        queue, count, what = ACKS_BLOCK.unpack_from(body, at)
        at += ACKS_BLOCK.size
        end = at + count * RANGE.size
        if end > len(body):
            raise RecordDamaged("acks", record.position)
        ranges = list(RANGE.iter_unpack(body[at:end]))
        if any(start >= stop for start, stop in ranges):
            raise RecordDamaged("acks", record.position)
        acks.append(Acks(queue, ranges, what & WHAT_MASK, what >> WHAT_BITS))
        at = end
    return acks


def encode_definitions(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def join_definitions(packed: Sequence[Buffer], count: int | None = None) -> bytes:
    """Join values that `encode_definitions` has encoded into one list; `count` is their number, if any of `packed`
    holds more than one."""
    number = len(packed) if count is None else count
    return b"".join((b"\xdd", number.to_bytes(4, "big"), *packed))


def decode_definitions(record: Record) -> Any:
    """Return the value. Raises RecordDamaged."""
    try:
        return msgpack.unpackb(bytes(record.body), strict_map_key=False)
    except UNPACK_ERRORS:
        raise RecordDamaged("definitions", record.position) from None


def move(record: Record, targets: Iterable[Target], cut: Buffer | None = None) -> Draft:
    """Return a draft that carries `record` forward to `targets`. It keeps the record's time, on which the expiry of
    its messages depends; if the record was moved before, it keeps the first origin.

    Args:
        cut: the group that is left of its batch or group: see vhost/cutting.py.
    """
    if record.kind == Kind.MOVED:
        position, epoch, body, kind = decode_moved(record)
    else:
        position, epoch, body = record.position, record.header.epoch, record.body
        kind = record.kind
    shown = 0 if kind == Kind.PUBLISH else kind
    origin = ORIGIN.pack(position, epoch & EPOCH_MASK | shown << EPOCH_BITS)
    header = record.header
    is_cut = header.cut or cut is not None
    return Draft(
        Kind.MOVED, origin + bytes(body if cut is None else cut), tuple(targets), header.time_us,
        grouped=header.grouped or is_cut, spread=header.spread, cut=is_cut,
    )  # fmt: skip


def decode_moved(record: Record) -> Moved:
    """Decode the body of a moved record. Raises RecordDamaged."""
    body = record.body
    if len(body) < ORIGIN.size:
        raise RecordDamaged("moved record", record.position)
    position, both = ORIGIN.unpack_from(body)
    kind = both >> EPOCH_BITS or Kind.PUBLISH
    return Moved(position, both & EPOCH_MASK, body[ORIGIN.size :], kind)


def batch_bytes(record: Record) -> Buffer:
    """Return the batch or group of a record whose kind is one of `MESSAGES`. Raises RecordDamaged."""
    return decode_moved(record).body if record.kind == Kind.MOVED else record.body


def gap_draft(missed: Missed, lane: int, offset: int, time_us: int) -> Draft:
    """Return a draft that records a gap in the stream with this lane, just before `offset`."""
    packed: bytes = msgpack.packb(missed)
    return Draft(Kind.GAP, packed, (Target(lane, offset),), time_us)


def decode_gap(record: Record) -> Missed:
    """Decode the body of a gap. Raises RecordDamaged."""
    try:
        missed = Missed._make(msgpack.unpackb(bytes(record.body)))
    except UNPACK_ERRORS:
        raise RecordDamaged("gap", record.position) from None
    if (
        [type(field) for field in missed] != [bytes, int, str, int, int]
        or len(missed.publisher) != PUBLISHER_BYTES
        or min(missed.epoch, missed.first, missed.messages) < 0
        or record.header.target_count != 1
    ):
        raise RecordDamaged("gap", record.position)
    return missed


def seal_draft(first: int, count: int, time_us: int) -> Draft:
    return Draft(Kind.SEAL, SEAL.pack(first, count), (), time_us)


SEAL_BYTES = seal_draft(0, 0, 0).size_bytes
