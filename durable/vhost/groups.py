"""Several batches of one publisher in the body of one record.

Messages that came together, each with a key of its own, are a batch each, and go to one queue. A record
each would be most of what they take on the disk and in memory, and nearly all the time that a start takes.

Layout, little endian, version 1 (pinned by tests/golden/group-v1.hex). The front has the fields that a
batch has where a batch has them (mesh/protocol/batch.py), so who only counts need not know which it is:

    at  size  field
     0     2  magic 0x424D ("MB")
     2     1  version, 1
     3     1  kind: 2
     4     4  0
     8     4  total length in bytes, this front included
    12     4  count of batches
    16     4  count of messages
    20     4  bytes of all payloads together
    24     8  publisher's epoch
    32     8  sequence of the first message; the others follow without a hole
    40     8  time to live of each message in us; -1: none has one
    48    16  publisher
    64        per batch: u32 length in bytes, u32 count of messages; then the batches, back to back
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import MAGIC, VERSION, Batch

from ..log.record import Buffer

KIND = 2
"""Where batches have theirs."""
KIND_AT = 3
FRONT = struct.Struct("<HBBIIIIIQQq16s")
ENTRY_BYTES = 8
NO_TTL = -1

BYTES_MAX, BATCHES_MAX = 64 * 1024, 64
"""Of one group, about: who wants one message reads all of it, what damage hits is lost with it, and it is
kept for as long as one message of it is needed."""
UNLIKE_BYTES = 64
"""So different may the average messages of two batches be, or by a half: to a lane all of a record are as
large as their average."""


class Front(NamedTuple):
    """What a group says of all its messages."""

    batches: int
    messages: int
    bodies_bytes: int
    epoch: int
    first: int
    """Sequence of the first message."""
    ttl_us: int | None
    publisher: bytes


def are_alike(count: int, bodies_bytes: int, other: Batch, other_bytes: int) -> bool:
    """Whether messages may share a record: so many, with these bytes of payloads, and those of a batch."""
    difference: int = abs(bodies_bytes * other.count - other_bytes * count)
    allowed: int = other.count * max(UNLIKE_BYTES * count, bodies_bytes // 2)
    return difference <= allowed


def encode_group(batches: Sequence[Batch], ttl_us: int | None) -> bytes:
    """Batches of one publisher and epoch whose sequences follow each other, as one body."""
    first = batches[0]
    entries: list[int] = []
    for batch in batches:
        entries += batch.size_bytes, batch.count
    count = len(batches)
    total = FRONT.size + ENTRY_BYTES * count + sum(entries[::2])
    front = FRONT.pack(
        MAGIC, VERSION, KIND, 0, total, count, sum(entries[1::2]),
        sum([batch.bodies_bytes for batch in batches]), first.epoch, first.base_sequence,
        NO_TTL if ttl_us is None else ttl_us, first.publisher,
    )  # fmt: skip
    table = struct.pack(f"<{2 * count}I", *entries)
    return b"".join((front, table, *[batch.view() for batch in batches]))


def is_group(body: Buffer) -> bool:
    """Else it is a batch, if anything."""
    return len(body) > KIND_AT and body[KIND_AT] == KIND


def read_front(body: Buffer) -> Front:
    """Raises RemoteProtocolError: this is no group."""
    if len(body) < FRONT.size:
        raise RemoteProtocolError(f"group of {len(body)} bytes is shorter than its front")
    (
        magic, version, kind, _, total, batches, messages, bodies_bytes, epoch, first, ttl_us, publisher,
    ) = FRONT.unpack_from(body)  # fmt: skip
    if (magic, version, kind) != (MAGIC, VERSION, KIND):
        raise RemoteProtocolError(f"group with magic {magic:#x}, version {version}, kind {kind}")
    if total != len(body) or not batches or FRONT.size + ENTRY_BYTES * batches > total:
        raise RemoteProtocolError(f"group of {len(body)} bytes claims {batches} batches in {total}")
    lives_us = None if ttl_us == NO_TTL else ttl_us
    return Front(batches, messages, bodies_bytes, epoch, first, lives_us, publisher)


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
    entries = struct.unpack_from(f"<{2 * batches}I", body, FRONT.size)
    # Where each begins, and where the last one ends.
    at = list(accumulate(entries[::2], initial=FRONT.size + ENTRY_BYTES * batches))
    firsts = list(accumulate(entries[1::2], initial=first))
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
