"""Calls and answers that are longer than a part: several parts of a control tunnel, put together again.

    piece     "P", u64 number of the call, u32 where it stands in the whole, u32 length of the whole,
              then its bytes

Nothing else begins with "P" there. Pieces of one whole come in order, and no other's come between
them; parts that are none may. The first piece of a whole ends whatever was not whole yet: who sent
that no longer waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import Malformed

PIECE = b"P"
HEADER = struct.Struct("<cQII")
PART_BYTES_MAX = 1 << 20
"""What is longer goes in pieces, whatever the tunnel takes: they leave room between them."""


def is_long(whole: bytes, part_bytes_max: int) -> bool:
    """Whether it goes in pieces where parts may be so large."""
    return len(whole) > min(part_bytes_max, PART_BYTES_MAX)


def in_pieces(number: int, whole: bytes, part_bytes_max: int) -> Iterator[bytes]:
    """Parts that are `whole` together, which is call `number`, or its answer."""
    size = max(1, min(part_bytes_max, PART_BYTES_MAX) - HEADER.size)
    for at in range(0, len(whole), size):
        yield HEADER.pack(PIECE, number, at, len(whole)) + whole[at : at + size]


class Pieces:
    """Of one tunnel, as they come.

    Args:
        bytes_max: of what they make together; so much is kept at most.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._end = self._total = self.number = 0
        """Of the whole that is coming; `number` is that of its call."""
        self._passing_over = False

    @property
    def kept_bytes(self) -> int:
        """Of a whole that has not come to its end."""
        return len(self._kept)

    def whole(self, part: bytes) -> bytes | None:
        """The part itself, or what the pieces up to this one make. None: there are more to come.

        Raises:
            Malformed: a piece that is not the next one, or a part that should have been several.
        """
        if len(part) > PART_BYTES_MAX:
            raise Malformed(f"{len(part)} bytes in one part, at most {PART_BYTES_MAX}")
        if part[:1] != PIECE:
            return part
        if len(part) <= HEADER.size:
            raise Malformed("a piece of nothing")
        _, number, at, total = HEADER.unpack_from(part)
        if total > self._bytes_max:
            raise Malformed(f"{total} bytes in pieces, at most {self._bytes_max}")
        if at == 0:
            self.number, self._end, self._total = number, 0, total
            self._kept, self._passing_over = bytearray(), False
        end = at + len(part) - HEADER.size
        if (number, at, total) != (self.number, self._end, self._total) or end > total:
            raise Malformed(f"a piece of bytes {at} to {end} of {total}, behind {self._end}")
        self._end = end
        if self._passing_over:
            return None
        self._kept += part[HEADER.size :]
        if end < total:
            return None
        whole, self._kept = bytes(self._kept), bytearray()
        return whole

    def give_up(self) -> None:
        """What has come of this whole is forgotten, and what is to come of it passed over."""
        self._kept, self._passing_over = bytearray(), True
