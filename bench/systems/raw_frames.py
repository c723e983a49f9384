"""Cuts payloads out of a byte stream. All payloads of a run have the same size, so most lengths are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

Cut = tuple[list[bytes], int, int]
"""Payloads, the count of bytes consumed, and the count needed before the next payload can be cut."""


class Frames(ABC):
    @abstractmethod
    def cut(self, data: bytes) -> Cut:
        """Cut all complete payloads. The next call gets the rest and what follows, once it is as long as wanted."""


class FixedFrames(Frames):
    """Deliveries that all start with the same bytes and have the same length.

    Args:
        tail_bytes: count of bytes after each payload.
        rest_bytes: count of bytes between the head and the payload, which may differ.
    """

    def __init__(self, head: bytes, size_bytes: int, tail_bytes: int, rest_bytes: int = 0) -> None:
        self._head = head
        self._start = len(head) + rest_bytes
        self._end = self._start + size_bytes
        self._length = self._end + tail_bytes

    def cut(self, data: bytes) -> Cut:
        payloads, at, size = list[bytes](), 0, len(data)
        head, start, end, length = self._head, self._start, self._end, self._length
        while at < size:
            if data.startswith(head, at):
                if at + length > size:
                    return payloads, at, length
                payloads.append(data[at + start : at + end])
                at += length
            elif other := self.other(data, at):
                at += other
            else:
                return payloads, at, size - at + 1
        return payloads, at, 1

    def other(self, data: bytes, at: int) -> int:
        """Return the length of what is at `at` and is not a delivery, or 0 if it is not complete yet.

        Raises:
            ValueError: nothing like that is expected.
        """
        if self._head.startswith(data[at : at + len(self._head)]):
            return 0
        raise ValueError(f"not a delivery: {data[at : at + 100]!r}")


class GreetedFrames(Frames):
    """Frames after a greeting of the other side, which is always the same bytes."""

    def __init__(self, greeting: bytes, frames: Frames) -> None:
        self._greeting, self._frames = greeting, frames

    def cut(self, data: bytes) -> Cut:
        """Cut as the inner frames do. Raises ValueError if the greeting is another one."""
        size = len(self._greeting)
        if len(data) < size:
            return [], 0, size
        if not data.startswith(self._greeting):
            raise ValueError(f"the other side greets with {data[:size]!r}")
        self._greeting = b""
        payloads, used, wanted = self._frames.cut(data[size:])
        return payloads, size + used, wanted


class LineFrames(FixedFrames):
    """Deliveries, between which there are lines, with which `line` is called."""

    def __init__(
        self, head: bytes, size_bytes: int, tail_bytes: int, line: Callable[[bytes], None]
    ) -> None:
        super().__init__(head, size_bytes, tail_bytes)
        self._line = line

    def other(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        # The head of a delivery may be several lines, and may have arrived only in part.
        if end < 0 or self._head.startswith(data[at : at + len(self._head)]):
            return 0
        self._line(data[at:end])
        return end + 2 - at


def varint(count: int) -> bytes:
    """Encode with seven bits per byte, the lowest first; the eighth bit means that more bytes follow."""
    data = b""
    while count > 0x7F:
        data += bytes([count & 0x7F | 0x80])
        count >>= 7
    return data + bytes([count])
