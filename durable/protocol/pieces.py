"""Answers that are longer than a part: several parts of a control tunnel, put together again.

    piece     "P", u32 where it stands in the whole, u32 length of the whole, then its bytes

Nothing else begins with "P" there. Pieces of one whole come in order, and no other's come between
them; parts that are none may.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mesh.errors import TooLarge

from ..errors import Malformed

PIECE = b"P"
HEADER = struct.Struct("<cII")
PIECE_BYTES = 1 << 20
"""What is longer goes in pieces, whatever the tunnel takes: they leave room between them."""


def is_long(whole: bytes, part_bytes_max: int) -> bool:
    """Whether it goes in pieces where parts may be so large."""
    return len(whole) > min(part_bytes_max, PIECE_BYTES)


def in_pieces(whole: bytes, part_bytes_max: int, bytes_max: int) -> Iterator[bytes]:
    """Parts that are `whole` together. Raises TooLarge: of more than `bytes_max` there are none."""
    total = len(whole)
    if total > bytes_max:
        raise TooLarge("what is sent in pieces", total, bytes_max)
    size = max(1, min(part_bytes_max, PIECE_BYTES) - HEADER.size)
    for at in range(0, total, size):
        yield HEADER.pack(PIECE, at, total) + whole[at : at + size]


class Pieces:
    """Of one tunnel, as they come.

    Args:
        bytes_max: of what they make together; so much is kept at most.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._found: list[bytes] = []
        self._size = self._total = 0

    def whole(self, part: bytes) -> bytes | None:
        """The part itself, or what the pieces up to this one make. None: there are more to come.

        Raises:
            Malformed: a piece that is not the next one.
        """
        if part[:1] != PIECE:
            return part
        if len(part) <= HEADER.size:
            raise Malformed("a piece of nothing")
        _, at, total = HEADER.unpack_from(part)
        if at == 0:
            self._total = total
        end = at + len(part) - HEADER.size
        if at != self._size or total != self._total or not end <= total <= self._bytes_max:
            raise Malformed(f"a piece of bytes {at} to {end} of {total}, behind {self._size}")
        self._found.append(part[HEADER.size :])
        self._size = end
        if end < total:
            return None
        whole = b"".join(self._found)
        self._found, self._size = [], 0
        return whole
