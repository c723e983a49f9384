"""Zenoh's data path for a floor: payloads to batches and back. The parts of a batch: zenoh_wire.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .raw_frames import Cut, Frames, varint
from .zenoh_wire import (
    BATCH_BYTES_MAX,
    FIRST,
    FIRST_FRAGMENT,
    FRAGMENT,
    FRAME,
    LAST_FRAGMENT,
    LENGTH_BYTES,
    read_varint,
)

NUMBER_BYTES_MAX, NUMBERS = 4, 1 << 28
"""Batch numbers have 28 bits: they start at zero and wrap around."""
SAME_UPPER = 0x80
"""Count of successive numbers whose varints differ only in the first byte."""


class Batches:
    """Makes the batches that one side of an open session sends.

    Args:
        batch_bytes_max: the longest batch that the other side accepts.
    """

    def __init__(self, batch_bytes_max: int) -> None:
        rest_bytes = min(batch_bytes_max, BATCH_BYTES_MAX) - LENGTH_BYTES
        self._room_bytes = rest_bytes - 1 - NUMBER_BYTES_MAX
        self._numbers = numbers()

    def frame(self, messages: bytes) -> bytes:
        return self._head(FRAME, len(messages)) + messages

    def puts(self, head: bytes, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Yield what is written at once: all messages, if batches hold them, or each single one. All have one size."""
        message_bytes = len(head) + len(payloads[0])
        count = self._room_bytes // message_bytes
        if not count:
            yield from (self._pieces(head + payload) for payload in payloads)
            return
        # Each batch's head is appended to the payload before it, so that the final join copies everything once.
        parts = [self._head(FRAME, min(count, len(payloads)) * message_bytes), *payloads]
        for at in range(count, len(payloads), count):
            parts[at] += self._head(FRAME, min(count, len(payloads) - at) * message_bytes)
        yield head.join(parts)

    def _pieces(self, message: bytes) -> bytes:
        view, room_bytes = memoryview(message), self._room_bytes - len(FIRST)
        parts: list[bytes | memoryview] = [self._head(FIRST_FRAGMENT, len(FIRST) + room_bytes)]
        parts += (FIRST, view[:room_bytes])
        for at in range(room_bytes, len(message), room_bytes):
            piece = view[at : at + room_bytes]
            kind = FRAGMENT if at + room_bytes < len(message) else LAST_FRAGMENT
            parts += (self._head(kind, len(piece)), piece)
        return b"".join(parts)

    def _head(self, kind: int, size_bytes: int) -> bytes:
        number = next(self._numbers)
        length = 1 + len(number) + size_bytes
        return length.to_bytes(LENGTH_BYTES, "little") + bytes([kind]) + number


class BatchFrames(Frames):
    """Cuts payloads of messages with the same head, each within one batch or in fragments over several.

    Args:
        other: called with batches that begin with another message: declarations, keep-alives, closings.
    """

    def __init__(self, head: bytes, size_bytes: int, other: Callable[[bytes], None]) -> None:
        self._head, self._message_bytes = head, len(head) + size_bytes
        self._other = other
        self._pieces: list[bytes] = []

    def cut(self, data: bytes) -> Cut:
        payloads, at, size = list[bytes](), 0, len(data)
        while at + LENGTH_BYTES <= size:
            start = at + LENGTH_BYTES
            end = start + int.from_bytes(data[at:start], "little")
            if end > size:
                return payloads, at, end - at
            kind = data[start]
            if kind == FRAME:
                self._take_frame(data, start, end, payloads)
            elif kind in (FIRST_FRAGMENT, FRAGMENT, LAST_FRAGMENT):
                first_bytes = len(FIRST) if kind == FIRST_FRAGMENT else 0
                _, piece = read_varint(data, start + 1)
                self._pieces.append(data[piece + first_bytes : end])
                if kind == LAST_FRAGMENT:
                    payloads.append(self._whole())
            else:
                self._other(data[start:end])
            at = end
        return payloads, at, LENGTH_BYTES

    def _take_frame(self, data: bytes, at: int, end: int, payloads: list[bytes]) -> None:
        """Append the payloads of a frame. Raises ValueError if only its first message is a delivery."""
        head, length = self._head, self._message_bytes
        (_, start), head_bytes = read_varint(data, at + 1), len(head)
        if not data.startswith(head, start):
            self._other(data[at:end])
            return
        for one in range(start, end, length):
            if one + length > end or not data.startswith(head, one):
                raise ValueError(f"not a delivery: {data[one : one + 100]!r}")
            payloads.append(data[one + head_bytes : one + length])

    def _whole(self) -> bytes:
        pieces, head = self._pieces, self._head
        self._pieces = []
        if sum(map(len, pieces)) != self._message_bytes or not pieces[0].startswith(head):
            raise ValueError(f"not a delivery, in pieces: {pieces[0][:100]!r}")
        pieces[0] = pieces[0][len(head) :]
        return b"".join(pieces)


def numbers(upper: int = 0) -> Iterator[bytes]:
    """Yield numbers as varints, made many at a time. `upper`: the first number's bits above the lowest seven."""
    lows = [bytes([low | 0x80]) for low in range(SAME_UPPER)]
    while True:
        rest = varint(upper)
        if upper:
            yield from [low + rest for low in lows]
        else:
            yield from [bytes([low]) for low in range(SAME_UPPER)]
        upper = (upper + 1) % (NUMBERS // SAME_UPPER)
