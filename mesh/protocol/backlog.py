"""Unread parts of a tunnel whose reader lags; many small ones are kept joined, as each alone takes 50 bytes more.

append ──> newest ──PACK_PARTS of them──> packs ──the oldest one, cut──> take
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import accumulate, pairwise
from typing import TypeAlias

PACK_PARTS = 16 * 1024
"""About as many small parts as a frame contains, so a reader that keeps up needs no backlog."""
SMALL_BYTES = 64
"""Parts with a larger average size are not joined."""

Pack: TypeAlias = "deque[bytes] | tuple[bytes, array[int]]"
"""Parts as they are; or joined, with the length of each."""


class Backlog:
    """Queue of parts. Packed, it takes at most five times the parts' bytes, an empty part counted as one byte."""

    __slots__ = ("_newest", "_packs")

    def __init__(self) -> None:
        self._packs: deque[Pack] = deque()
        self._newest: deque[bytes] = deque()

    def append(self, part: bytes) -> None:
        self._newest.append(part)
        if len(self._newest) >= PACK_PARTS:
            self._packs.append(_packed(self._newest))
            self._newest = deque()

    def take(self) -> deque[bytes]:
        """Return the oldest parts, `PACK_PARTS` of them or all; an empty deque if there are none."""
        if self._packs:
            return _unpacked(self._packs.popleft())
        parts, self._newest = self._newest, deque()
        return parts


def _packed(parts: deque[bytes]) -> Pack:
    sizes = [*map(len, parts)]
    if sum(sizes) > SMALL_BYTES * len(sizes):
        return parts
    return b"".join(parts), array("H" if max(sizes) < 1 << 16 else "I", sizes)


def _unpacked(pack: Pack) -> deque[bytes]:
    if isinstance(pack, deque):
        return pack
    joined, sizes = pack
    return deque(joined[start:end] for start, end in pairwise(accumulate(sizes, initial=0)))
