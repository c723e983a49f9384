"""A batch: messages of one topic by one publisher, packed once for wire, disk and Arrow.

Layout, little endian, version 1 (pinned by tests/golden/batch-v1.hex):

    at  size  field
     0     2  magic 0x424D ("MB")
     2     1  version, 1
     3     1  kind: 0 messages, 1 lost (no columns; `count` messages were dropped here)
     4     2  flags: 1 a per-message headers column follows the lengths
     6     2  topic length in bytes
     8     4  total length in bytes, this header included
    12     4  CRC-32 of bytes [16, total)
    16     4  count of messages
    20     4  shared headers length in bytes
    24     8  publisher's epoch
    32     8  base sequence: message i has sequence base + i
    40     8  time in us since 1970, when the batch was packed
    48    16  publisher: node id
    64        topic; shared headers (msgpack map or nothing); `count` u32 body lengths;
              with flag 1: `count` u32 header lengths, then the headers (msgpack maps) back to back;
              bodies back to back

`(publisher, epoch, topic, sequence)` names a message for ever: a hole in the sequence is a loss
anybody can see, a repeated one a duplicate anybody can refuse. Links are authenticated, so the
checksum is for the disk: written here, checked by whoever reads it back from somewhere slower.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from zlib import crc32

from ..errors import RemoteProtocolError

MAGIC, VERSION = 0x424D, 1
MESSAGES, LOST = 0, 1
FLAG_HEADERS = 1
HEADER = struct.Struct("<HBBHHIIIIQQq16s")
HEADER_BYTES = HEADER.size
CHECKED_FROM = 16
COUNT_MAX = 1 << 20
"""Messages in one batch; bounds what a peer can make us allocate per frame byte."""


class Batch:
    """One batch, read lazily from the bytes it stands in.

    `payloads[i]` has sequence `base_sequence + i`. Nothing is copied until `payloads` is read.
    """

    __slots__ = (
        "_lengths_at", "base_sequence", "buffer", "count", "end", "epoch", "flags", "kind",
        "publisher", "shared_headers", "start", "time_us", "topic",
    )  # fmt: skip

    def __init__(self, buffer: bytes, start: int = 0, end: int | None = None) -> None:
        """Read the header of the batch at `buffer[start:end]`.

        Raises:
            RemoteProtocolError: the bytes are no batch, or a length in it is impossible.
        """
        end = len(buffer) if end is None else end
        if end - start < HEADER_BYTES:
            raise RemoteProtocolError(f"batch of {end - start} bytes is shorter than its header")
        (
            magic, version, self.kind, self.flags, topic_length, total, _crc, self.count,
            headers_length, self.epoch, self.base_sequence, self.time_us, self.publisher,
        ) = HEADER.unpack_from(buffer, start)  # fmt: skip
        if magic != MAGIC or version != VERSION:
            raise RemoteProtocolError(f"batch with magic {magic:#x}, version {version}")
        topic_at = start + HEADER_BYTES
        self._lengths_at = topic_at + topic_length + headers_length
        columns = 0 if self.kind == LOST else 4 * self.count
        if total != end - start or self._lengths_at + columns > end:
            raise RemoteProtocolError(f"batch of {end - start} bytes claims {total}")
        if self.kind == MESSAGES and not 0 < self.count <= COUNT_MAX:
            raise RemoteProtocolError(f"batch of {self.count} messages")
        try:
            self.topic = buffer[topic_at : topic_at + topic_length].decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("batch with a topic that is not UTF-8") from None
        self.shared_headers = buffer[topic_at + topic_length : self._lengths_at]
        self.buffer, self.start, self.end = buffer, start, end

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def next_sequence(self) -> int:
        return self.base_sequence + self.count

    def checksum_ok(self) -> bool:
        stored = struct.unpack_from("<I", self.buffer, self.start + 12)[0]
        return bool(crc32(memoryview(self.buffer)[self.start + CHECKED_FROM : self.end]) == stored)

    def raw(self) -> bytes:
        """The batch's own bytes."""
        return self.buffer[self.start : self.end]

    def message_headers(self) -> list[bytes] | None:
        """The per-message headers column, or None when the batch has none."""
        if not self.flags & FLAG_HEADERS or self.kind == LOST:
            return None
        return self._column(self._lengths_at + 4 * self.count)[0]

    @property
    def payloads(self) -> list[bytes]:
        """The bodies. Raises RemoteProtocolError when the lengths do not add up."""
        if self.kind == LOST:
            return []
        at = self._lengths_at
        bodies_at = at + 4 * self.count
        if self.flags & FLAG_HEADERS:
            bodies_at = self._column(bodies_at)[1]
        lengths = struct.unpack_from(f"<{self.count}I", self.buffer, at)
        return self._cut(lengths, bodies_at, self.end)

    def _column(self, at: int) -> tuple[list[bytes], int]:
        data_at = at + 4 * self.count
        if data_at > self.end:
            raise RemoteProtocolError("batch whose headers column does not fit")
        lengths = struct.unpack_from(f"<{self.count}I", self.buffer, at)
        end = data_at + sum(lengths)
        return self._cut(lengths, data_at, end), end

    def _cut(self, lengths: tuple[int, ...], at: int, end: int) -> list[bytes]:
        if at + sum(lengths) != end or end > self.end:
            raise RemoteProtocolError("batch whose lengths do not add up")
        buffer, size = self.buffer, lengths[0]
        if size and lengths.count(size) == len(lengths):  # Equal bodies are cut in C: 3x faster.
            cutter = struct.iter_unpack(f"{size}s", memoryview(buffer)[at:end])
            return [body for (body,) in cutter]
        return [buffer[a:b] for a, b in pairwise(accumulate(lengths, initial=at))]


def encode_batch(
    publisher: bytes,
    epoch: int,
    base_sequence: int,
    time_us: int,
    topic: bytes,
    payloads: Sequence[bytes],
    *,
    shared_headers: bytes = b"",
    message_headers: Sequence[bytes] | None = None,
) -> bytes:
    """Pack messages of one topic. `message_headers`, when given, is as long as `payloads`."""
    count = len(payloads)
    columns = [topic, shared_headers, struct.pack(f"<{count}I", *map(len, payloads))]
    if message_headers is not None:
        columns.append(struct.pack(f"<{count}I", *map(len, message_headers)))
        columns += message_headers
    flags = 0 if message_headers is None else FLAG_HEADERS
    body = b"".join((*columns, *payloads))
    return _seal_header(
        MESSAGES, flags, len(topic), len(shared_headers), count, publisher, epoch, base_sequence,
        time_us, body,
    )  # fmt: skip


def encode_lost(
    publisher: bytes, epoch: int, base_sequence: int, time_us: int, topic: bytes, count: int
) -> bytes:
    """Say that `count` messages from `base_sequence` on were dropped before this point."""
    return _seal_header(
        LOST, 0, len(topic), 0, count, publisher, epoch, base_sequence, time_us, topic
    )


def _seal_header(
    kind: int, flags: int, topic_length: int, headers_length: int, count: int, publisher: bytes,
    epoch: int, base_sequence: int, time_us: int, body: bytes,
) -> bytes:  # fmt: skip
    total = HEADER_BYTES + len(body)
    header = HEADER.pack(
        MAGIC, VERSION, kind, flags, topic_length, total, 0, count, headers_length, epoch,
        base_sequence, time_us, publisher,
    )  # fmt: skip
    checksum = crc32(body, crc32(header[CHECKED_FROM:]))
    return b"".join((header[:12], checksum.to_bytes(4, "little"), header[16:], body))
