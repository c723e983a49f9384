"""Zenoh's bytes, as far as a floor needs them: version 9 of its wire, that of Zenoh 1.

    batch = length (2 bytes, little-endian, of what follows) and one of
        INIT, OPEN            the handshake: who, how large, an echoed cookie, how long a silence may be
        FRAME number          messages of the network, as many as fit
        FRAGMENT number       a piece of a message that fits into no batch
    message = one of
        DECLARE key           from now on `id` stands for a name
        DECLARE subscriber    what is put under that key is wanted
        DECLARE final         that was all there was when the session began
        PUSH key PUT payload

A message that is put names its key by the id of the side that receives it. Numbers are varints.
No extension is agreed on: priorities share one sequence, and nothing goes through shared memory.
"""

from __future__ import annotations

from .raw_frames import varint

LENGTH_BYTES = 2
BATCH_BYTES_MAX = 0xFFFF
"""With its length."""
VERSION, PEER, ID_BYTES = 9, 1, 16
KIND_AND_ACK = 0x3F
"""Of a batch's first byte; the others say what follows."""
INIT, INIT_ACK, OPEN, OPEN_ACK = 0x01, 0x21, 0x02, 0x22
SIZES, SECONDS = 0x40, 0x40
"""In the head of an INIT: sizes follow; in that of an OPEN: its lease is in seconds."""
LEASE_S = 86_400
"""Longer than any run, so that nobody has to be told that this side is still there."""
FRAME, FIRST_FRAGMENT, FRAGMENT, LAST_FRAGMENT = 0x25, 0xE6, 0x66, 0x26
"""All of them of the reliable kind."""
FIRST = b"\x02"
"""Behind the number of a first fragment: that it is one. Zenoh says so unasked."""
KEY_ID = 1
"""The only one of either side: a client of the bench takes one topic."""
DECLARE, KEY, SUBSCRIBER = b"\x9e\x21\x08", 0x20, 0x42
"""A declaration's head says that it goes first and is not dropped; behind it, what is declared."""
FINAL = b"\xbe\x00\x21\x08\x1a"
"""Told without being asked for (question 0): that was all there was when the session began."""
PUSH = b"\x9d"
KEY_EXTENSION_PUT = b"\x21\x0d\x01"
"""Behind the key: of normal priority, waits where there is no room; a PUT without time or encoding."""


def batch(kind: int, body: bytes) -> bytes:
    return (1 + len(body)).to_bytes(LENGTH_BYTES, "little") + bytes([kind]) + body


def init(own_id: bytes) -> bytes:
    return batch(INIT, who(own_id))


def init_ack(own_id: bytes, cookie: bytes) -> bytes:
    return batch(INIT_ACK, who(own_id) + varint(len(cookie)) + cookie)


def who(own_id: bytes) -> bytes:
    """Without sizes: those that everybody has."""
    return bytes([VERSION, (ID_BYTES - 1) << 4 | PEER]) + own_id


def open_syn(cookie: bytes) -> bytes:
    """This side's first batch has number 0."""
    body = varint(LEASE_S) + varint(0) + varint(len(cookie)) + cookie
    return batch(OPEN | SECONDS, body)


def open_ack() -> bytes:
    return batch(OPEN_ACK | SECONDS, varint(LEASE_S) + varint(0))


def read_init(body: bytes) -> tuple[int, bytes]:
    """The longest batch that the other side takes, and its cookie; without one (an INIT) that is empty.

    Raises ConnectionError: it speaks another version.
    """
    if body[1] != VERSION:
        raise ConnectionError(f"the other side speaks version {body[1]} of Zenoh's wire")
    at, batch_bytes_max, cookie = 3 + (body[2] >> 4) + 1, BATCH_BYTES_MAX, b""
    if body[0] & SIZES:
        batch_bytes_max = int.from_bytes(body[at + 1 : at + 3], "little")
        at += 3
    if body[0] & KIND_AND_ACK == INIT_ACK:
        length, at = read_varint(body, at)
        cookie = body[at : at + length]
    return batch_bytes_max, cookie


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """And where what follows begins."""
    number = shift = 0
    while data[at] > 0x7F:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def subscribed(topic: str) -> bytes:
    """Two declarations: the key has an id, and what is put under it is wanted."""
    return DECLARE + key_declared(topic, KEY_ID) + DECLARE + bytes([SUBSCRIBER, KEY_ID, KEY_ID])


def key_declared(topic: str, key_id: int) -> bytes:
    return bytes([KEY, key_id]) + whole_name(topic)


def whole_name(topic: str) -> bytes:
    """One that builds on no other key's, whose id would stand before it."""
    return bytes([0, len(topic)]) + topic.encode()


def find_key(declarations: bytes, topic: str) -> int | None:
    """Under which id the other side wants it; None: it has declared no such key, so wants nothing of it."""
    at = declarations.find(whole_name(topic))
    return declarations[at - 1] if at > 1 and declarations[at - 2] == KEY else None


def put_head(key_id: int, size_bytes: int) -> bytes:
    """All of a message but its payload."""
    return PUSH + varint(key_id) + KEY_EXTENSION_PUT + varint(size_bytes)
