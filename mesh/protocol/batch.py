"""A batch: messages of one topic by one publisher, packed once for wire, disk and Arrow.

Layout, little endian, version 1 (pinned by tests/golden/batch-v1.hex):

    at  size  field
     0     2  magic 0x424D ("MB")
     2     1  version, 1
     3     1  kind: 0 messages, 1 lost (no columns; `count` messages were dropped here); 2 is no batch,
           but a group of them in a broker's log
     4     2  flags: 1 a per-message headers column follows the lengths; readers ignore others
     6     2  topic length in bytes
     8     4  total length in bytes, this header included
    12     4  0
    16     4  count of messages
    20     4  shared headers length in bytes
    24     8  publisher's epoch
    32     8  base sequence: message i has sequence base + i
    40     8  time in us since 1970, when the batch was packed
    48    16  publisher: node id
    64        topic; shared headers (msgpack map or nothing); `count` u32 body lengths;
              with flag 1: `count` u32 header lengths, then the headers (msgpack maps) back to back;
              bodies back to back

`(publisher, epoch, topic, sequence)` identifies a message for good: every receiver can detect a loss by
a gap in the sequence, and a duplicate by a repeated one. A batch has no checksum, which would be a tenth
of the sender's work: links are authenticated, and in the log a batch is inside a record, which has one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ..errors import RemoteProtocolError
from .frame import Buffer

MAGIC, VERSION = 0x424D, 1
MESSAGES, LOST = 0, 1
FLAG_HEADERS = 1
HEADER = struct.Struct("<HBBHHIIIIQQq16s")
HEADER_BYTES = HEADER.size
U32_MAX = (1 << 32) - 1
NUMBERS_END = 1 << 63
"""Sequences and epochs are below this: they fit 64 bits, signed or not, and so does the end of a batch, unsigned."""
PER_MESSAGE_BYTES = 8
"""Most bytes that a message takes beside its body and headers: 4 in each of the two columns of lengths."""
COUNT_MAX = 1 << 20
"""Most messages in one batch; bounds what a peer can make us allocate per byte of a frame."""


class Batch:
    """One batch, decoded lazily from the bytes that contain it.

    `payloads[i]` has sequence `base_sequence + i`. Nothing is copied until `payloads` is read.
    """

    __slots__ = (
        "_bodies_at", "_lengths", "_lengths_at", "base_sequence", "buffer", "count", "end",
        "epoch", "flags", "kind", "publisher", "shared_headers", "start", "time_us", "topic",
    )  # fmt: skip

    def __init__(self, buffer: Buffer, start: int = 0, end: int | None = None) -> None:
        """Read the header of the batch at `buffer[start:end]`.

        Raises:
            RemoteProtocolError: if the bytes are not a batch, or a length in it is impossible.
        """
        end = len(buffer) if end is None else end
        if end - start < HEADER_BYTES:
            raise RemoteProtocolError(f"batch of {end - start} bytes is shorter than its header")
        (
            magic, version, self.kind, self.flags, topic_length, total, _, self.count,
            headers_length, self.epoch, self.base_sequence, self.time_us, self.publisher,
        ) = HEADER.unpack_from(buffer, start)  # fmt: skip
        if magic != MAGIC or version != VERSION:
            raise RemoteProtocolError(f"batch with magic {magic:#x}, version {version}")
        topic_at = start + HEADER_BYTES
        self._lengths_at = topic_at + topic_length + headers_length
        columns = 0 if self.kind == LOST else 4 * self.count
        if total != end - start or self._lengths_at + columns > end:
            raise RemoteProtocolError(f"batch of {end - start} bytes claims {total}")
        if self.kind not in (MESSAGES, LOST):
            raise RemoteProtocolError(f"batch of unknown kind {self.kind}")
        if self.kind == MESSAGES and not 0 < self.count <= COUNT_MAX:
            raise RemoteProtocolError(f"batch with an invalid count, {self.count} messages")
        try:
            self.topic = str(buffer[topic_at : topic_at + topic_length], "utf-8")
        except UnicodeDecodeError:
            raise RemoteProtocolError("batch with a topic that is not UTF-8") from None
        headers_at = topic_at + topic_length
        self.shared_headers = (
            bytes(buffer[headers_at : self._lengths_at]) if headers_length else b""
        )
        self.buffer, self.start, self.end = buffer, start, end
        self._lengths: tuple[int, ...] = ()
        self._bodies_at = 0

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def next_sequence(self) -> int:
        return int(self.base_sequence) + int(self.count)

    @property
    def bodies_bytes(self) -> int:
        """Bytes of all payloads together. Raises as `check` does."""
        if self.flags & FLAG_HEADERS:
            self.check()
            return int(self.end - self._bodies_at)
        return int(self.end - self._lengths_at - 4 * self.count)

    def raw(self) -> bytes:
        """Return the bytes of the batch."""
        return bytes(self.buffer[self.start : self.end])

    def view(self) -> memoryview:
        """Return the bytes of the batch without copying them."""
        return memoryview(self.buffer)[self.start : self.end]

    def check(self) -> None:
        """Raise RemoteProtocolError unless the lengths add up; reading cannot fail after that."""
        if self._lengths or self.kind == LOST:
            return
        at = self._lengths_at + 4 * self.count
        if self.flags & FLAG_HEADERS:
            if at + 4 * self.count > self.end:
                raise RemoteProtocolError("batch whose headers column does not fit")
            at += 4 * self.count + sum(self._column(at))
        lengths = self._column(self._lengths_at)
        if at + sum(lengths) != self.end:
            raise RemoteProtocolError("batch whose lengths do not add up")
        self._lengths, self._bodies_at = lengths, at

    @property
    def longest_bytes(self) -> int:
        """Size of the longest payload. Raises as `check` does."""
        self.check()
        return max(self._lengths, default=0)

    def message_headers(self) -> list[bytes] | None:
        """Return the headers of each message, None if the batch has no such column. Raises as `check` does."""
        if not self.flags & FLAG_HEADERS or self.kind == LOST:
            return None
        self.check()
        at = self._lengths_at + 4 * self.count
        return self._cut(self._column(at), at + 4 * self.count, self._bodies_at)

    def message_bytes(self) -> list[int]:
        """Return how many bytes each message takes, its entries in the columns of lengths included, without a
        share of the batch's header. Raises as `check` does."""
        self.check()
        if not self.flags & FLAG_HEADERS:
            return [4 + body for body in self._lengths]
        headers = self._column(self._lengths_at + 4 * self.count)
        return [8 + body + size for body, size in zip(self._lengths, headers, strict=True)]

    @property
    def payloads(self) -> list[bytes]:
        """The bodies of the messages, in order. Raises as `check` does."""
        if self.kind == LOST:
            return []
        self.check()
        return self._cut(self._lengths, self._bodies_at, self.end)

    def cut(self, first: int, count: int) -> Batch:
        """Return messages [`first`, `first + count`) as a batch of their own. Raises as `check` does."""
        return next(self.cuts([(first, first + count)]))

    def cuts(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Batch]:
        """Yield the messages of each range [first, end) as a batch of their own; ranges must ascend.

        Nothing is done per message: columns and bodies are cut as bytes.
        """
        self.check()
        buffer, lengths = memoryview(self.buffer), self._lengths
        column_at = self._lengths_at + 4 * self.count
        sizes = self._column(column_at) if self.flags & FLAG_HEADERS else ()
        topic_and_headers = buffer[self.start + HEADER_BYTES : self._lengths_at]
        topic_bytes = len(topic_and_headers) - len(self.shared_headers)
        done, header_at, at = 0, column_at + 4 * self.count, self._bodies_at
        for first, end in ranges:
            at += sum(lengths[done:first])
            bodies_end = at + sum(lengths[first:end])
            pieces: list[Buffer] = [
                b"", topic_and_headers, buffer[self._lengths_at + 4 * first : self._lengths_at + 4 * end],
            ]  # fmt: skip
            if sizes:
                header_at += sum(sizes[done:first])
                headers_end = header_at + sum(sizes[first:end])
                pieces.append(buffer[column_at + 4 * first : column_at + 4 * end])
                pieces.append(buffer[header_at:headers_end])
                header_at = headers_end
            pieces.append(buffer[at:bodies_end])
            pieces[0] = HEADER.pack(
                MAGIC, VERSION, MESSAGES, self.flags & FLAG_HEADERS, topic_bytes,
                HEADER_BYTES + sum(map(len, pieces)), 0, end - first, len(self.shared_headers), self.epoch,
                self.base_sequence + first, self.time_us, self.publisher,
            )  # fmt: skip
            yield Batch(b"".join(pieces))
            done, at = end, bodies_end

    def halves(self) -> tuple[Batch, Batch]:
        """Return the batch as two, because it does not fit as a whole. It must have at least two messages."""
        half = self.count // 2
        return self.cut(0, half), self.cut(half, self.count - half)

    def readdressed(self, topic: str, shared_headers: bytes) -> Batch:
        """Return the same messages under another topic, with other shared headers."""
        headers = self.message_headers()
        pieces, _ = batch_pieces(
            self.publisher, self.epoch, self.base_sequence, self.time_us, topic.encode(),
            self.payloads, shared_headers=shared_headers, message_headers=headers,
        )  # fmt: skip
        return Batch(b"".join(pieces))

    def _column(self, at: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{self.count}I", self.buffer, at)

    def _cut(self, lengths: tuple[int, ...], at: int, end: int) -> list[bytes]:
        buffer, size = self.buffer, lengths[0]
        if size and lengths.count(size) == len(lengths):  # Equal bodies are cut in C: 3x faster.
            cutter = struct.iter_unpack(f"{size}s", memoryview(buffer)[at:end])
            return [body for (body,) in cutter]
        if isinstance(buffer, memoryview):
            buffer, at = bytes(buffer[at:end]), 0
        return [buffer[a:b] for a, b in pairwise(accumulate(lengths, initial=at))]


def batch_pieces(
    publisher: bytes,
    epoch: int,
    base_sequence: int,
    time_us: int,
    topic: bytes,
    payloads: Sequence[bytes],
    *,
    shared_headers: bytes = b"",
    message_headers: Sequence[bytes] | None = None,
) -> tuple[list[bytes], int]:
    """Pack messages of one topic; return the batch in pieces, to be joined once, and its size in bytes.

    Args:
        message_headers: headers of each message, as many as `payloads`; None: no such column.
    """
    count = len(payloads)
    lengths = struct.pack(f"<{count}I", *map(len, payloads))
    pieces = [b"", topic, shared_headers, lengths]
    flags = 0
    total = HEADER_BYTES + len(topic) + len(shared_headers) + len(lengths)
    if message_headers is not None:
        flags = FLAG_HEADERS
        column = struct.pack(f"<{count}I", *map(len, message_headers))
        pieces += (column, *message_headers)
        total += len(column) + sum(map(len, message_headers))
    pieces += payloads
    total += sum(map(len, payloads))
    pieces[0] = HEADER.pack(
        MAGIC, VERSION, MESSAGES, flags, len(topic), total, 0, count, len(shared_headers), epoch,
        base_sequence, time_us, publisher,
    )  # fmt: skip
    return pieces, total


def encode_lost(
    publisher: bytes, epoch: int, base_sequence: int, time_us: int, topic: bytes, count: int
) -> bytes:
    """Pack a batch of kind *lost*: `count` messages from `base_sequence` on were dropped before this point.

    A count that does not fit its field is told as the largest one that does: the sequence of the next
    message tells the rest.
    """
    header = HEADER.pack(
        MAGIC, VERSION, LOST, 0, len(topic), HEADER_BYTES + len(topic), 0, min(count, U32_MAX), 0,
        epoch, base_sequence, time_us, publisher,
    )  # fmt: skip
    return header + topic
