"""The parts sent in tunnels of publishers, consumers and readers, as bytes; numbers are little endian.

To the broker:

    publish   batches of mesh/protocol/batch.py, back to back
    settle    "A", then per range: u8 outcome (1 ack, 2 requeue, 3 reject, 4 release), u64 first tag,
              u64 end tag (exclusive). Requeued messages count as returned. A client that closes its tunnel in
              order first requeues the unsettled messages that its user received; the broker releases the rest
    hurry     "H": the client waits until all its settlements are on disk; without it the broker may delay them
    leaving   "L": the client is about to close the tunnel and wants no more deliveries
    cursor    "K", u64 offset: everything before it has been read

From the broker:

    confirm   "C", u64 sequence: everything before it is decided; then msgpack [[first, count, code, {...}], ...],
              the refused messages; all others are stored. A refusal may be sent ahead of its confirm, with the
              sequence of the last one: if the tunnel breaks before the confirm, its messages are tried again
    deliver   "D", then per slice: u64 first tag (in streams: offset), u32 returned, u32 batch length, then a batch
              of exactly those messages
    settled   "S", u64 count of this tunnel's settle parts that are on disk; to a reader: its cursor on disk
    gap       "G", u64 offset, msgpack [publisher, epoch, topic, first, messages]: messages that were not captured
              right before this offset, which is in the next deliver
    ended     "E", msgpack [code, {...}]: why nothing more comes; in any tunnel, also instead of a greeting
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from mesh.errors import RemoteProtocolError
from mesh.protocol.batch import HEADER_BYTES, MESSAGES, NUMBERS_END, Batch
from mesh.protocol.frame import Buffer
from security.unpacking import UNPACK_ERRORS

from ..errors import DurableError, Malformed
from .error_codec import describe_error, rebuild_error

SETTLE, HURRY, LEAVING, CURSOR = b"A", b"H", b"L", b"K"
CONFIRM, DELIVER, SETTLED, GAP, ENDED = b"C", b"D", b"S", b"G", b"E"
ACK, REQUEUE, REJECT, RELEASE = 1, 2, 3, 4

NUMBER = struct.Struct("<cQ")
RANGE = struct.Struct("<BQQ")
SLICE = struct.Struct("<QII")
SLICE_BYTES = SLICE.size
BATCH_LENGTH = struct.Struct("<I")
BATCH_LENGTH_AT = 8
PART_OVERHEAD_BYTES = 64 * 1024
"""How much of a part is reserved for what surrounds a message: key, properties, headers."""
ARRAY_BYTES_MAX = 5
"""The longest prefix that msgpack writes before the elements of an array."""


class Settlement(NamedTuple):
    """Tags [`start`, `end`) of one consumer, all with one outcome."""

    outcome: int
    start: int
    end: int


class Refusal(NamedTuple):
    """`count` messages of one publisher that were not stored, from sequence `first` on, and why."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    code: str
    details: Mapping[str, Any]


class Slice(NamedTuple):
    """Consecutive messages as one delivery carries them, `tag` being that of the first."""

    tag: int
    returned: int
    batch: Batch


class Gap(NamedTuple):
    """Messages that a stream should have captured but did not, right before `offset`."""

    offset: int
    publisher: bytes
    """Its node id. All zeros, with no topic, for several old gaps that were merged into one."""
    epoch: int
    topic: str
    first: int
    """The first missing one of the publisher's sequences on this topic."""
    messages: int


def decode_batches(part: bytes) -> list[Batch]:
    """Decode batches back to back. Raises Malformed unless each is whole, valid and within the range of sequences."""
    batches: list[Batch] = []
    at = 0
    try:
        while at < len(part):
            if len(part) - at < HEADER_BYTES:
                raise Malformed("a truncated batch")
            (size,) = BATCH_LENGTH.unpack_from(part, at + BATCH_LENGTH_AT)
            batch = Batch(part, at, at + size) if size <= len(part) - at else None
            if batch is None or batch.kind != MESSAGES:
                raise Malformed("a damaged batch")
            batch.check()
            if batch.next_sequence > NUMBERS_END:
                raise Malformed(
                    f"a batch with sequences up to {batch.next_sequence}, want less than {NUMBERS_END}"
                )
            batches.append(batch)
            at += size
    except RemoteProtocolError as error:
        raise Malformed(str(error)) from None
    return batches


def encode_settlements(settlements: Iterable[Settlement]) -> bytes:
    return SETTLE + b"".join([RANGE.pack(*one) for one in settlements])


def decode_settlements(part: bytes) -> list[Settlement]:
    """Raises Malformed."""
    if (len(part) - 1) % RANGE.size:
        raise Malformed("truncated settlements")
    found = [Settlement(*fields) for fields in RANGE.iter_unpack(memoryview(part)[1:])]
    if not found or any(
        one.outcome not in (ACK, REQUEUE, REJECT, RELEASE) or one.start >= one.end for one in found
    ):
        raise Malformed("a settlement with an unknown outcome, or of no messages")
    return found


def encode_number(kind: bytes, number: int) -> bytes:
    """Encode a cursor or a count of settle parts."""
    return NUMBER.pack(kind, number)


def decode_number(part: bytes) -> int:
    """Raises Malformed."""
    if len(part) != NUMBER.size:
        raise Malformed("a truncated number, or more than one")
    return int(NUMBER.unpack_from(part)[1])


def encode_confirm(sequence: int, refusals: Sequence[Refusal]) -> bytes:
    return NUMBER.pack(CONFIRM, sequence) + (msgpack.packb(refusals) if refusals else b"")


def count_fitting(refusals: Sequence[Refusal], bytes_max: int) -> int:
    """Return how many refusals, from the first on, fit into one confirm: at least one, if there is any."""
    size, count = NUMBER.size + ARRAY_BYTES_MAX, 0
    for refusal in refusals:
        size += len(msgpack.packb(refusal))
        if count and size > bytes_max:
            break
        count += 1
    return count


def decode_confirm(part: bytes) -> tuple[int, list[Refusal]]:
    """Raises Malformed."""
    if part[:1] != CONFIRM or len(part) < NUMBER.size:
        raise Malformed("an invalid or truncated confirm")
    sequence = decode_number(part[: NUMBER.size])
    if len(part) == NUMBER.size:
        return sequence, []
    try:
        return sequence, [
            Refusal(int(first), int(count), str(code), dict(details))
            for first, count, code, details in msgpack.unpackb(part[NUMBER.size :])
        ]
    except UNPACK_ERRORS:
        raise Malformed("invalid refusals") from None


def encode_slice(tag: int, returned: int, batch: Buffer) -> tuple[bytes, Buffer]:
    """Return pieces that are to be joined behind DELIVER."""
    return SLICE.pack(tag, returned, len(batch)), batch


def decode_slices(part: bytes) -> Iterator[Slice]:
    """Raises Malformed."""
    at = 1
    while at < len(part):
        if len(part) - at < SLICE.size:
            raise Malformed("a truncated delivery")
        tag, returned, size = SLICE.unpack_from(part, at)
        at += SLICE.size
        if size > len(part) - at:
            raise Malformed("a truncated delivery")
        try:
            batch = Batch(part, at, at + size)
            batch.check()
        except RemoteProtocolError as error:
            raise Malformed(str(error)) from None
        yield Slice(tag, returned, batch)
        at += size


def encode_gap(gap: Gap) -> bytes:
    packed: bytes = msgpack.packb(gap[1:])
    return NUMBER.pack(GAP, gap.offset) + packed


def decode_gap(part: bytes) -> Gap:
    """Raises Malformed."""
    try:
        gap = Gap(decode_number(part[: NUMBER.size]), *msgpack.unpackb(part[NUMBER.size :]))
    except UNPACK_ERRORS:
        raise Malformed("a gap that is not msgpack") from None
    if [type(field) for field in gap] != [int, bytes, int, str, int, int]:
        raise Malformed("a gap with invalid fields")
    return gap


def encode_ended(why: DurableError) -> bytes:
    """Encode why a tunnel ends; this may be the first part that the broker sends."""
    packed: bytes = msgpack.packb(describe_error(why))
    return ENDED + packed


def decode_ended(part: bytes) -> DurableError:
    """Return why the tunnel ended. Raises Malformed."""
    try:
        code, details = msgpack.unpackb(part[1:])
    except UNPACK_ERRORS:
        raise Malformed("an end without a reason") from None
    if not isinstance(code, str) or not isinstance(details, dict):
        raise Malformed("an end without code and details")
    return rebuild_error(code, details)
