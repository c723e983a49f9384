"""Several batches of one publisher in the body of one record.

Messages that came together, each with a key of its own, are a batch each, and go to one queue. A record
each would be most of what they take on the disk and in memory, and nearly all the time that a start takes.

Layout, little endian, version 1 (pinned by tests/golden/group-v1.hex and spread-v1.hex). The front has the
fields that a batch has where a batch has them (mesh/protocol/batch.py), so who only counts need not know
which it is:

    at  size  field
     0     2  magic 0x424D ("MB")
     2     1  version, 1
     3     1  kind: 2; 3 when it is spread
     4     4  0; of a spread one the messages of its stretch, 0 if that has holes
     8     4  total length in bytes, this front included
    12     4  count of batches
    16     4  count of messages
    20     4  bytes of all payloads together
    24     8  publisher's epoch
    32     8  sequence of the first message, or where the stretch begins
    40     8  time to live of each message in us; -1: none has one
    48    16  publisher
    64        per batch: u32 length in bytes, u32 count of messages; then the batches, back to back

Sequences of messages that go to queues in turn have holes in each of their groups, and these are spread:

    64     4  which record of its stretch it is, from 0 on
    68     4  how many records that has, which follow each other: all that was planned with it. 0: it
              has no stretch
    72        per batch: u32 length in bytes, u32 count of messages, u32 distance of its first sequence
              from that of the front; then the batches, back to back

A start that finds all records of a stretch without a hole need not look at the sequences of each.
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
"""Where batches have theirs."""
KINDS = (KIND, SPREAD_KIND)
KIND_AT = 3
FRONT = struct.Struct("<HBBIIIIIQQq16s")
NUMBER = struct.Struct("<II")
ENTRY_FIELDS, FIELD_BYTES = {KIND: 2, SPREAD_KIND: 3}, 4
DISTANCE_END = 1 << 32
"""Of sequences in a spread one, from the front's."""
NO_TTL = -1

BYTES_MAX, BATCHES_MAX = 64 * 1024, 256
"""Of one group, about. Each record takes a start some 20 us on a slow machine. But who wants one message reads all of
it, what damage hits is lost with it, and retention of a stream removes it as one."""
UNLIKE_BYTES = 64
"""So different may the average messages of two batches be, or by a half: to a lane all of a record are as
large as their average."""


class GroupStretch(NamedTuple):
    """Sequences from `first` on in so many records that follow each other."""

    first: int
    messages: int
    """All of them, without a hole; 0: there are holes."""
    records: int


class Front(NamedTuple):
    """What a group says of all its messages."""

    batches: int
    messages: int
    bodies_bytes: int
    epoch: int
    first: int
    """Sequence of the first message, or where the stretch begins."""
    ttl_us: int | None
    publisher: bytes
    spread: bool = False
    """Whether there are holes between its messages: then `sequences_in` says which they are."""
    stretch: GroupStretch | None = None
    number: int = 0
    """Which record of the stretch it is."""

    @property
    def kind(self) -> int:
        return SPREAD_KIND if self.spread else KIND


def are_alike(count: int, bodies_bytes: int, other: Batch, other_bytes: int) -> bool:
    """Whether messages may share a record: so many, with these bytes of payloads, and those of a batch."""
    difference: int = abs(bodies_bytes * other.count - other_bytes * count)
    allowed: int = other.count * max(UNLIKE_BYTES * count, bodies_bytes // 2)
    return difference <= allowed


def encode_group(
    batches: Sequence[Batch],
    ttl_us: int | None,
    stretch: GroupStretch | None = None,
    number: int = 0,
) -> bytes:
    """Batches of one publisher and epoch whose sequences rise, as one body: spread, where they have holes or
    are record `number` of a stretch."""
    first = batches[0].base_sequence
    messages = sum([batch.count for batch in batches])
    spread = stretch is not None or batches[-1].next_sequence - first != messages
    front = Front(
        len(batches), messages, sum([batch.bodies_bytes for batch in batches]), batches[0].epoch,
        first if stretch is None else stretch.first, ttl_us, batches[0].publisher, spread, stretch, number,
    )  # fmt: skip
    return pack_group(front, batches)


def pack_group(front: Front, batches: Sequence[Batch]) -> bytes:
    """These batches behind that front."""
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
    """Else it is a batch, if anything."""
    return len(body) > KIND_AT and body[KIND_AT] in KINDS


def is_spread(group: Buffer) -> bool:
    return group[KIND_AT] == SPREAD_KIND


def read_front(body: Buffer) -> Front:
    """Raises RemoteProtocolError: this is no group."""
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
    """Where the first of so many begins."""
    number_bytes = NUMBER.size if kind == SPREAD_KIND else 0
    return FRONT.size + number_bytes + FIELD_BYTES * ENTRY_FIELDS[kind] * batches


def _table(body: Buffer, front: Front) -> tuple[int, ...]:
    count = ENTRY_FIELDS[front.kind] * front.batches
    return struct.unpack_from(f"<{count}I", body, _batches_at(front.kind, 0))


def sequences_in(body: Buffer, front: Front) -> list[tuple[int, int]]:
    """Ranges [first, end) of its publisher's sequences, ascending, neighbours merged."""
    if not front.spread:
        return [(front.first, front.first + front.messages)]
    entries, fields = _table(body, front), ENTRY_FIELDS[SPREAD_KIND]
    firsts = [front.first + distance for distance in entries[2::fields]]
    return merged(
        (first, first + count) for first, count in zip(firsts, entries[1::fields], strict=True)
    )


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges, those that touch as one."""
    found: list[tuple[int, int]] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, end))
    return found


def batches_in(body: Buffer, first: int, start: int, end: int) -> list[tuple[Batch, int]]:
    """Those batches of a body that have any of the messages [`start`, `end`) of a lane, each with the
    sequence of its first one there; of a body that is one batch, that one.

    Args:
        first: the sequence in that lane of the body's first message.
    Raises:
        RemoteProtocolError: it is neither a batch nor a group, or its table is wrong.
    """
    if not is_group(body):
        return [(Batch(body), first)]
    front = read_front(body)
    batches = front.batches
    entries, fields = _table(body, front), ENTRY_FIELDS[front.kind]
    # Where each begins, and where the last one ends.
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
            raise RemoteProtocolError(f"batch of {batch.count} where its group says otherwise")
    return found


def part_of(batch: Batch, first: int, start: int, end: int) -> Batch:
    """Those of its messages that have sequences [`start`, `end`) in a lane where it begins at `first`."""
    low, high = max(start - first, 0), min(end - first, batch.count)
    return batch if high - low == batch.count else batch.cut(low, high - low)
