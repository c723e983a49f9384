"""Calls and answers longer than a part: split into pieces, and joined again at the other end of a control tunnel.

    piece     "P", u64 number of the call, u32 position in the whole, u32 length of the whole,
              then its bytes

No other part of a control tunnel begins with "P". The pieces of one whole come in order, and no pieces of
another whole between them; other parts may come between. The first piece of a new whole discards an
unfinished one: its sender was cancelled and no longer waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import Malformed

PIECE = b"P"
HEADER = struct.Struct("<cQII")
PART_BYTES_MAX = 1 << 20
"""Anything longer is sent in pieces, even if the tunnel takes longer parts, so that other parts fit in between."""


def is_long(whole: bytes, part_bytes_max: int) -> bool:
    """Return whether it has to be sent in pieces through a tunnel with this limit."""
    return len(whole) > min(part_bytes_max, PART_BYTES_MAX)


def in_pieces(number: int, whole: bytes, part_bytes_max: int) -> Iterator[bytes]:
    """Yield the pieces of `whole`, which is call `number` or its answer."""
    size = max(1, min(part_bytes_max, PART_BYTES_MAX) - HEADER.size)
    for at in range(0, len(whole), size):
        yield HEADER.pack(PIECE, number, at, len(whole)) + whole[at : at + size]


class Pieces:
    """Joins the pieces that come through one tunnel.

    Args:
        bytes_max: the longest whole that is accepted; no more than that is kept.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._end = self._total = self.number = 0
        """End of the last piece, length, and call number of the present whole."""
        self._discarding = False

    @property
    def kept_bytes(self) -> int:
        """Bytes of a whole that is not complete yet."""
        return len(self._kept)

    def join(self, part: bytes) -> bytes | None:
        """Return the part itself, or the whole that this piece completes; None if more pieces are to come.

        Raises:
            Malformed: a piece is not the next one, or a part should have been sent in pieces.
        """
        if len(part) > PART_BYTES_MAX:
            raise Malformed(f"{len(part)} bytes in one part, at most {PART_BYTES_MAX}")
        if part[:1] != PIECE:
            return part
        if len(part) <= HEADER.size:
            raise Malformed("an empty piece")
        _, number, at, total = HEADER.unpack_from(part)
        if total > self._bytes_max:
            raise Malformed(f"{total} bytes in pieces, at most {self._bytes_max}")
        if at == 0:
            self.number, self._end, self._total = number, 0, total
            self._kept, self._discarding = bytearray(), False
        end = at + len(part) - HEADER.size
        if (number, at, total) != (self.number, self._end, self._total) or end > total:
            raise Malformed(f"a piece with bytes {at} to {end} of {total} after byte {self._end}")
        self._end = end
        if self._discarding:
            return None
        self._kept += part[HEADER.size :]
        if end < total:
            return None
        whole, self._kept = bytes(self._kept), bytearray()
        return whole

    def discard(self) -> None:
        """Drop the pieces of the present whole, and ignore those still to come."""
        self._kept, self._discarding = bytearray(), True
