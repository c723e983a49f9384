"""Cuts payloads out of a stream. All payloads of a run are of one size, so most lengths are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

Cut = tuple[list[bytes], int, int]
"""Payloads, how many bytes are used up, and how many there must be for another payload."""


class Frames(ABC):
    @abstractmethod
    def cut(self, data: bytes) -> Cut:
        """The next call's `data` starts with what is not used up, and is as long as wanted."""


class FixedFrames(Frames):
    """Every delivery starts with the same bytes and is of the same length.

    Args:
        tail_bytes: behind each payload.
        rest_bytes: between the head and the payload, and different each time.
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
        """How long what is there is, if it is no delivery; 0: that much has not come yet.

        Raises:
            ValueError: nothing like that is expected.
        """
        if self._head.startswith(data[at : at + len(self._head)]):
            return 0
        raise ValueError(f"not a delivery: {data[at : at + 100]!r}")


class GreetedFrames(Frames):
    """The other side greets first, always with the same bytes."""

    def __init__(self, greeting: bytes, frames: Frames) -> None:
        self._greeting, self._frames = greeting, frames

    def cut(self, data: bytes) -> Cut:
        """Raises ValueError: it begins with something else."""
        size = len(self._greeting)
        if len(data) < size:
            return [], 0, size
        if not data.startswith(self._greeting):
            raise ValueError(f"the other side greets with {data[:size]!r}")
        self._greeting = b""
        payloads, used, wanted = self._frames.cut(data[size:])
        return payloads, size + used, wanted


class LineFrames(FixedFrames):
    """Between deliveries there are lines, which `line` is told of."""

    def __init__(
        self, head: bytes, size_bytes: int, tail_bytes: int, line: Callable[[bytes], None]
    ) -> None:
        super().__init__(head, size_bytes, tail_bytes)
        self._line = line

    def other(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        # The start of a delivery may be more than one line, and not all be there yet.
        if end < 0 or self._head.startswith(data[at : at + len(self._head)]):
            return 0
        self._line(data[at:end])
        return end + 2 - at


def varint(count: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth bit says that there are more."""
    data = b""
    while count > 0x7F:
        data += bytes([count & 0x7F | 0x80])
        count >>= 7
    return data + bytes([count])
