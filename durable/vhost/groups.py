"""Groups: several batches of one publisher in the body of one record.

Messages that came together, each with a key of its own, are one batch each, and often all go to one queue.
A record for each would be most of what they take on the disk and in memory, and nearly all the time that a
start takes.

Layout, little endian, version 1 (pinned by tests/golden/group-v1.hex and spread-v1.hex). The front has its
common fields at the same places as a batch (mesh/protocol/batch.py), so code that only counts need not
distinguish the two:

    at  size  field
     0     2  magic 0x424D ("MB")
     2     1  version, 1
     3     1  kind: 2; 3 if the group is spread
     4     4  0; if spread, the messages of its stretch, or 0 if the stretch has holes
     8     4  total length in bytes, this front included
    12     4  count of batches
    16     4  count of messages
    20     4  bytes of all payloads together
    24     8  publisher's epoch
    32     8  sequence of the first message; if spread, of the first message of the stretch
    40     8  time to live of each message in us; -1: they have none
    48    16  publisher
    64        per batch: u32 length in bytes, u32 count of messages; then the batches, back to back

If a publisher's messages go to several queues in turn, the sequences in each group have holes. Such a group
is spread:

    64     4  number of this record in its stretch, from 0
    68     4  count of records of the stretch. They follow each other in the log, and are all that one
              plan stored. 0: it belongs to no stretch
    72        per batch: u32 length in bytes, u32 count of messages, u32 distance of its first sequence
              from that of the front; then the batches, back to back

A start that finds all records of a stretch without holes need not read the sequences of each group.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import MAGIC, VERSION, Batch

from ..log.record import Buffer

KIND, SPREAD_KIND = 2, 3
"""At the place where batches have their kind."""
KINDS = (KIND, SPREAD_KIND)
KIND_AT = 3
FRONT = struct.Struct("<HBBIIIIIQQq16s")
NUMBER = struct.Struct("<II")
ENTRY_FIELDS, FIELD_BYTES = {KIND: 2, SPREAD_KIND: 3}, 4
DISTANCE_END = 1 << 32
"""Limit of the distance of a sequence in a spread group from that of its front."""
NO_TTL = -1

BYTES_MAX, BATCHES_MAX = 64 * 1024, 256
"""Approximate limits of one group. Larger groups save time at a start, which spends some 20 us per record on
a slow machine. But a consumer of one message has to read the whole group, damage to it loses all of it,
and retention of a stream removes it as one."""
DIFFERENCE_BYTES_MAX = 64
"""Bytes by which the average message sizes of two batches may differ (or by a half) to share a record: a lane
takes all messages of a record to be as large as their average."""


class GroupStretch(NamedTuple):
    """Sequences from `first` on, stored in `records` records that follow each other."""

    first: int
    messages: int
    """All messages of the stretch, if it has no holes; else 0."""
    records: int


class Front(NamedTuple):
    """The front of a group: what it says of all its messages."""

    batches: int
    messages: int
    bodies_bytes: int
    epoch: int
    first: int
    """Sequence of the first message; if spread, of the first message of the stretch."""
    ttl_us: int | None
    publisher: bytes
    spread: bool = False
    """Whether there are holes between its sequences; `sequences_in` returns which there are."""
    stretch: GroupStretch | None = None
    number: int = 0
    """The number of this record in its stretch."""

    @property
    def kind(self) -> int:
        return SPREAD_KIND if self.spread else KIND


def are_alike(count: int, bodies_bytes: int, other: Batch, other_bytes: int) -> bool:
    """Whether messages are similar enough to share a record: `count` with `bodies_bytes` of payloads, and
    `other`."""
    difference: int = abs(bodies_bytes * other.count - other_bytes * count)
    allowed: int = other.count * max(DIFFERENCE_BYTES_MAX * count, bodies_bytes // 2)
    return difference <= allowed


def encode_group(
    batches: Sequence[Batch],
    ttl_us: int | None,
    stretch: GroupStretch | None = None,
    number: int = 0,
) -> bytes:
    """Encode batches of one publisher and epoch, with rising sequences, as one body. The group is spread if
    the sequences have holes, or if it is record `number` of a stretch."""
    first = batches[0].base_sequence
    messages = sum([batch.count for batch in batches])
    spread = stretch is not None or batches[-1].next_sequence - first != messages
    front = Front(
        len(batches), messages, sum([batch.bodies_bytes for batch in batches]), batches[0].epoch,
        first if stretch is None else stretch.first, ttl_us, batches[0].publisher, spread, stretch, number,
    )  # fmt: skip
    return pack_group(front, batches)


def pack_group(front: Front, batches: Sequence[Batch]) -> bytes:
    """Encode a front and the batches behind it."""
    stretch, ttl_us = front.stretch, front.ttl_us
    entries: list[int] = []
    for batch in batches:
        entries += batch.size_bytes, batch.count
        if front.spread:
            entries.append(batch.base_sequence - front.first)
    kind = front.kind
    table = struct.pack(f"<{len(entries)}I", *entries)
    if front.spread:
        numbers = (front.number, stretch.records) if stretch else (0, 0)
        table = NUMBER.pack(*numbers) + table
    total = FRONT.size + len(table) + sum(entries[:: ENTRY_FIELDS[kind]])
    packed = FRONT.pack(
        MAGIC, VERSION, kind, stretch.messages if stretch else 0, total, len(batches), front.messages,
        front.bodies_bytes, front.epoch, front.first, NO_TTL if ttl_us is None else ttl_us,
        front.publisher,
    )  # fmt: skip
    return b"".join((packed, table, *[batch.view() for batch in batches]))


def is_group(body: Buffer) -> bool:
    """Whether the body is a group; otherwise it is a batch, or damaged."""
    return len(body) > KIND_AT and body[KIND_AT] in KINDS


def is_spread(group: Buffer) -> bool:
    return group[KIND_AT] == SPREAD_KIND


def read_front(body: Buffer) -> Front:
    """Decode the front of a group. Raises RemoteProtocolError if the body is not a group."""
    if len(body) < FRONT.size:
        raise RemoteProtocolError(f"group of {len(body)} bytes is shorter than its front")
    (
        magic, version, kind, stretched, total, batches, messages, bodies_bytes, epoch, first, ttl_us,
        publisher,
    ) = FRONT.unpack_from(body)  # fmt: skip
    if (magic, version) != (MAGIC, VERSION) or kind not in KINDS:
        raise RemoteProtocolError(f"group with magic {magic:#x}, version {version}, kind {kind}")
    if total != len(body) or not batches or _batches_at(kind, batches) > total:
        raise RemoteProtocolError(f"group of {len(body)} bytes claims {batches} batches in {total}")
    lives_us = None if ttl_us == NO_TTL else ttl_us
    if kind == KIND:
        return Front(batches, messages, bodies_bytes, epoch, first, lives_us, publisher)
    number, records = NUMBER.unpack_from(body, FRONT.size)
    if number and number >= records:
        raise RemoteProtocolError(f"group {number} of a stretch of {records}")
    stretch = GroupStretch(first, stretched, records) if records else None
    return Front(
        batches, messages, bodies_bytes, epoch, first, lives_us, publisher, spread=True,
        stretch=stretch, number=number,
    )  # fmt: skip


def _batches_at(kind: int, batches: int) -> int:
    """Return the byte at which the first of `batches` batches begins."""
    number_bytes = NUMBER.size if kind == SPREAD_KIND else 0
    return FRONT.size + number_bytes + FIELD_BYTES * ENTRY_FIELDS[kind] * batches


def _table(body: Buffer, front: Front) -> tuple[int, ...]:
    count = ENTRY_FIELDS[front.kind] * front.batches
    return struct.unpack_from(f"<{count}I", body, _batches_at(front.kind, 0))


def sequences_in(body: Buffer, front: Front) -> list[tuple[int, int]]:
    """Return ranges [first, end) of the publisher's sequences, ascending, adjacent ones merged."""
    if not front.spread:
        return [(front.first, front.first + front.messages)]
    entries, fields = _table(body, front), ENTRY_FIELDS[SPREAD_KIND]
    firsts = [front.first + distance for distance in entries[2::fields]]
    return merged(
        (first, first + count) for first, count in zip(firsts, entries[1::fields], strict=True)
    )


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ascending ranges with those that touch merged."""
    found: list[tuple[int, int]] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, end))
    return found


def batches_in(body: Buffer, first: int, start: int, end: int) -> list[tuple[Batch, int]]:
    """Return the batches of a body that have any of the messages [`start`, `end`) of a lane, each with the
    lane's sequence of its first message. If the body is a batch, return that batch.

    Args:
        first: the lane's sequence of the body's first message.
    Raises:
        RemoteProtocolError: the body is neither a batch nor a group, or its table is wrong.
    """
    if not is_group(body):
        return [(Batch(body), first)]
    front = read_front(body)
    batches = front.batches
    entries, fields = _table(body, front), ENTRY_FIELDS[front.kind]
    # Where each batch begins, and where the last one ends.
    at = list(accumulate(entries[::fields], initial=_batches_at(front.kind, batches)))
    firsts = list(accumulate(entries[1::fields], initial=first))
    if (at[-1], firsts[-1] - first) != (len(body), front.messages):
        raise RemoteProtocolError(
            f"group of {len(body)} bytes and {front.messages} messages whose batches end at {at[-1]} "
            f"with {firsts[-1] - first}"
        )
    low = max(0, bisect_right(firsts, start) - 1)
    high = min(batches, bisect_left(firsts, end))
    found = [(Batch(body, at[one], at[one + 1]), firsts[one]) for one in range(low, high)]
    for (batch, its_first), its_end in zip(found, firsts[low + 1 :], strict=False):
        if its_first + batch.count != its_end:
            raise RemoteProtocolError(
                f"batch of {batch.count} messages, unlike what its group says"
            )
    return found


def part_of(batch: Batch, first: int, start: int, end: int) -> Batch:
    """Return the part of a batch that has the sequences [`start`, `end`) in a lane, where its first message
    has sequence `first`."""
    low, high = max(start - first, 0), min(end - first, batch.count)
    return batch if high - low == batch.count else batch.cut(low, high - low)
