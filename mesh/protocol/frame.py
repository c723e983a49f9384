"""Frames and records: what travels on a lane. One frame is one zmq part.

Frame, little endian, version 1 (pinned by tests/golden/frame-v1.hex; docs/wire.md has the prose):

    at  size  field
     0     1  magic 0xAE
     1     1  version, 1
     2     1  lane: 0 control, 1 data
     3     1  reserved, 0
     4     4  count of records
     8     8  sequence on this lane, from 1; 0: outside the sequence (hello, heartbeat, pure ack)
    16     8  highest sequence received on the control lane, all before it received too
    24     8  the same for the data lane
    32        records back to back

Record:

     0     1  type (see `Kind`)
     1     1  flags: 1 more pieces of this record follow
     2     2  reserved, 0
     4     4  body length
     8     8  id: of the request, tunnel, subscription or batch; scoped by type and sender
    16        body

A record larger than a chunk travels in pieces with the same type and id, all but the last flagged
and of at least 512 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from ..errors import RemoteProtocolError

MAGIC, VERSION = 0xAE, 1
CONTROL, DATA = 0, 1
MORE = 1
Buffer = bytes | memoryview
"""A frame as it arrives: bytes, or for a large one a view of libzmq's own memory."""
Part = Buffer | bytearray
"""A part of a frame to be packed: a record, or a piece of one."""
FRAME = struct.Struct("<BBBBIQQQ")
RECORD = struct.Struct("<BBHIQ")
FRAME_BYTES, RECORD_BYTES = FRAME.size, RECORD.size
GREETING_BYTES_MAX = 256 * 1024
"""More than the size of INTRODUCED, the longest record sent before both ends know each other's frame limit."""


class Kind(IntEnum):
    """Record types. Numbers never change; receivers skip unknown types from 0x40 on."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    INTRODUCE = 4
    INTRODUCED = 5
    BYE = 6
    HEARTBEAT = 7
    GOSSIP = 8
    SUBSCRIBE = 9
    UNSUBSCRIBE = 10
    CREDIT = 11
    BATCH = 16
    BROADCAST = 17
    REQUEST = 18
    REPLY = 19
    ERROR = 20
    BUSY = 21
    CANCEL = 22
    TUNNEL_OPEN = 24
    TUNNEL_ACCEPT = 25
    TUNNEL_DATA = 26
    TUNNEL_EOF = 27
    TUNNEL_CREDIT = 28
    TUNNEL_STOP = 29
    TUNNEL_RESET = 30
    TUNNEL_BLOCKED = 31


IGNORABLE_FROM = 0x40
KNOWN_KINDS = frozenset(int(kind) for kind in Kind)

Record = tuple[int, int, int, int, int]
"""(type, flags, id, start, end) of a record; the body is `frame.data[start:end]`, not copied."""


class Frame:
    """A decoded frame: its header and where its records lie."""

    __slots__ = ("ack_control", "ack_data", "data", "lane", "records", "sequence")

    def __init__(self, data: Buffer) -> None:
        """Decode one zmq part.

        Raises:
            RemoteProtocolError: if it is not a frame of this version, or a length in it is impossible.
        """
        if len(data) < FRAME_BYTES:
            raise RemoteProtocolError(f"frame of {len(data)} bytes is shorter than its header")
        magic, version, self.lane, _, count, self.sequence, self.ack_control, self.ack_data = (
            FRAME.unpack_from(data)
        )
        if magic != MAGIC:
            raise RemoteProtocolError(f"frame with magic {magic:#x}")
        if version != VERSION:
            raise RemoteProtocolError(f"frame of version {version}, this node speaks {VERSION}")
        if self.lane not in (CONTROL, DATA):
            raise RemoteProtocolError(f"frame for lane {self.lane}")
        at, size = FRAME_BYTES, len(data)
        if count * RECORD_BYTES > size - at:
            raise RemoteProtocolError(f"frame of {size} bytes claims {count} records")
        records: list[Record] = []
        for _ in range(count):
            if at + RECORD_BYTES > size:
                raise RemoteProtocolError("frame ends inside a record header")
            kind, flags, _, length, ident = RECORD.unpack_from(data, at)
            at += RECORD_BYTES
            if length > size - at:
                raise RemoteProtocolError(f"record of {length} bytes, {size - at} left in frame")
            if kind in KNOWN_KINDS:
                records.append((kind, flags, ident, at, at + length))
            elif kind < IGNORABLE_FROM:
                raise RemoteProtocolError(f"record of unknown type {kind}")
            at += length
        if at != size:
            raise RemoteProtocolError(f"frame with {size - at} bytes after its records")
        self.data, self.records = data, records


def largest_frame(frame_bytes_max: int) -> int:
    """Return the largest frame in bytes that a node with this setting accepts: greetings and gossip are not
    split to fit the setting."""
    return max(frame_bytes_max, GREETING_BYTES_MAX)


def pack_record(kind: int, ident: int, body: bytes, flags: int = 0) -> bytes:
    return RECORD.pack(kind, flags, 0, len(body), ident) + body


def pack_frame(
    lane: int,
    sequence: int,
    ack_control: int,
    ack_data: int,
    count: int,
    records: Sequence[Part],
) -> bytes:
    """Join records, each a packed header and body or the pieces of one, into a frame."""
    header = FRAME.pack(MAGIC, VERSION, lane, 0, count, sequence, ack_control, ack_data)
    return b"".join((header, *records))
