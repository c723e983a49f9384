"""Zenoh's wire format, as far as a floor needs it: version 9, that of Zenoh 1.

    batch = length (2 bytes, little-endian, of what follows) and one of
        INIT, OPEN            the handshake: ids, sizes, an echoed cookie, the lease
        FRAME number          messages of the network, as many as fit
        FRAGMENT number       a piece of a message that does not fit into a batch
    message = one of
        DECLARE key           from now on `id` stands for a name
        DECLARE subscriber    messages put under that key are wanted
        DECLARE final         end of the declarations from before the session
        PUSH key PUT payload

A put message names its key by the id that the receiving side has declared. Numbers are varints. No extension is
negotiated: all priorities share one sequence, and nothing goes through shared memory.
"""

from __future__ import annotations

from .raw_frames import varint

LENGTH_BYTES = 2
BATCH_BYTES_MAX = 0xFFFF
"""Including the length itself."""
VERSION, PEER, ID_BYTES = 9, 1, 16
KIND_AND_ACK = 0x3F
"""Mask for a batch's first byte; its other bits tell what follows."""
INIT, INIT_ACK, OPEN, OPEN_ACK = 0x01, 0x21, 0x02, 0x22
SIZES, SECONDS = 0x40, 0x40
"""Flags: in the head of an INIT, that sizes follow; in that of an OPEN, that the lease is in seconds."""
LEASE_S = 86_400
"""Longer than any run, so that no keep-alives are needed."""
FRAME, FIRST_FRAGMENT, FRAGMENT, LAST_FRAGMENT = 0x25, 0xE6, 0x66, 0x26
"""All with the flag "reliable"."""
FIRST = b"\x02"
"""Follows the number of a first fragment and marks it as the first. Zenoh sends it without negotiation."""
KEY_ID = 1
"""The only key id of each side: a client of the bench receives one topic."""
DECLARE, KEY, SUBSCRIBER = b"\x9e\x21\x08", 0x20, 0x42
"""The head of a declaration: its priority is high and it is not dropped. It is followed by what is declared."""
FINAL = b"\xbe\x00\x21\x08\x1a"
"""Sent unasked (interest id 0): the end of the declarations from before the session."""
PUSH = b"\x9d"
KEY_EXTENSION_PUT = b"\x21\x0d\x01"
"""Follows the key: normal priority, wait if there is no room; a PUT without timestamp or encoding."""


def batch(kind: int, body: bytes) -> bytes:
    return (1 + len(body)).to_bytes(LENGTH_BYTES, "little") + bytes([kind]) + body


def init(own_id: bytes) -> bytes:
    return batch(INIT, who(own_id))


def init_ack(own_id: bytes, cookie: bytes) -> bytes:
    return batch(INIT_ACK, who(own_id) + varint(len(cookie)) + cookie)


def who(own_id: bytes) -> bytes:
    """Return version, role and id; the sizes are omitted, which means the defaults."""
    return bytes([VERSION, (ID_BYTES - 1) << 4 | PEER]) + own_id


def open_syn(cookie: bytes) -> bytes:
    """Return an OPEN; this side's first batch has number 0."""
    body = varint(LEASE_S) + varint(0) + varint(len(cookie)) + cookie
    return batch(OPEN | SECONDS, body)


def open_ack() -> bytes:
    return batch(OPEN_ACK | SECONDS, varint(LEASE_S) + varint(0))


def read_init(body: bytes) -> tuple[int, bytes]:
    """Return the longest batch that the other side accepts, and its cookie, which is empty in an INIT.

    Raises ConnectionError if the other side speaks another version.
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
    """Return the number at `at`, and where the bytes after it begin."""
    number = shift = 0
    while data[at] > 0x7F:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def subscribed(topic: str) -> bytes:
    """Return two declarations: the key's id, and that messages put under it are wanted."""
    return DECLARE + key_declared(topic, KEY_ID) + DECLARE + bytes([SUBSCRIBER, KEY_ID, KEY_ID])


def key_declared(topic: str, key_id: int) -> bytes:
    return bytes([KEY, key_id]) + whole_name(topic)


def whole_name(topic: str) -> bytes:
    """Return a key name in full: it is not relative to another key, whose id would come first."""
    return bytes([0, len(topic)]) + topic.encode()


def find_key(declarations: bytes, topic: str) -> int | None:
    """Return the id that the other side declared for `topic`, or None if it does not want it."""
    at = declarations.find(whole_name(topic))
    return declarations[at - 1] if at > 1 and declarations[at - 2] == KEY else None


def put_head(key_id: int, size_bytes: int) -> bytes:
    """Return a PUT message up to its payload."""
    return PUSH + varint(key_id) + KEY_EXTENSION_PUT + varint(size_bytes)
