"""Which messages of a lane are settled: all below `low`, and those above it that were settled out of order.

Above `low`, each chunk of 4096 sequences has a bitmap (an int) if some of them are settled; chunks that are
settled as a whole are kept as ranges. So one message that is never settled does not make the settled ones
behind it expensive.

Bytes (`encode`), little endian: low u64, end u64, number of bitmaps u32, per bitmap its chunk u64 and
512 bytes; then the whole chunks as `Ranges` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from .ranges import Ranges

CHUNK = 4096
_FULL = (1 << CHUNK) - 1
_HEAD = Struct("<QQI")
_BITMAP = Struct(f"<Q{CHUNK // 8}s")

_NO_WHOLE = Ranges().encode()


class Settled:
    __slots__ = ("_bitmaps", "_whole_chunks", "end", "low")

    def __init__(self) -> None:
        self.low = 0
        """The lowest sequence that is not settled."""
        self.end = 0
        """No sequence from here on is settled."""
        self._bitmaps: dict[int, int] = {}
        self._whole_chunks = Ranges()

    def add(self, start: int, end: int) -> None:
        """Settle [start, end); parts of it may be settled already."""
        if end <= self.low or start >= end:
            return
        if start > self.low:
            self._set_range(start, end)
        elif end < self.end:
            self._raise_low(end)
        else:
            self.low = end
            if self._bitmaps or self._whole_chunks.numbers:
                self._bitmaps.clear()
                self._whole_chunks.clear()
        if end > self.end:
            self.end = end

    def covers(self, start: int, end: int) -> bool:
        return end <= self.low or self._edge(start, False, end) >= end

    def unsettled(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in [start, end) that are not settled, in order."""
        while (start := self._edge(start, False, end)) < end:
            edge = self._edge(start, True, end)
            yield start, edge
            start = edge

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in [start, end) that are settled, in order."""
        while (start := self._edge(start, True, end)) < end:
            edge = self._edge(start, False, end)
            yield start, edge
            start = edge

    def count_unsettled(self, start: int, end: int) -> int:
        """Return how many messages in [start, end) are not settled."""
        return sum(high - low for low, high in self.unsettled(start, end))

    def _edge(self, at: int, settled: bool, end: int) -> int:
        """Return the first sequence from `at` on whose being settled equals `settled`; or `end`."""
        if at < self.low:
            if settled:
                return min(at, end)
            at = self.low
        while at < min(end, self.end):
            chunk, offset = divmod(at, CHUNK)
            bits = self._bitmaps.get(chunk, 0)
            if not bits and self._whole_chunks:
                whole, edge = self._whole_chunks.lookup(chunk, chunk + 1 + self.end // CHUNK)
                if whole and settled:
                    return at
                if whole:
                    at = edge * CHUNK
                    continue
            found = (bits if settled else bits ^ _FULL) >> offset
            if found:
                return min(end, at + (found & -found).bit_length() - 1)
            at = (chunk + 1) * CHUNK
        return end if settled else min(at, end)

    def _is_whole(self, chunk: int) -> bool:
        return bool(self._whole_chunks.lookup(chunk, chunk + 1)[0])

    def _set_range(self, start: int, end: int) -> None:
        first, offset = divmod(start, CHUNK)
        last, rest = divmod(end, CHUNK)
        if first == last:
            self._set(first, (1 << rest) - (1 << offset))
            return
        if offset:
            self._set(first, _FULL ^ ((1 << offset) - 1))
            first += 1
        if rest:
            self._set(last, (1 << rest) - 1)
        if first < last:
            self._forget(first, last)
            self._whole_chunks.cut(first, last)
            self._whole_chunks.put(first, last, 1)

    def _set(self, chunk: int, mask: int) -> None:
        bits = self._bitmaps.get(chunk, 0) | mask
        if bits == _FULL:
            del self._bitmaps[chunk]
            self._whole_chunks.put(chunk, chunk + 1, 1)
        elif not self._is_whole(chunk):
            self._bitmaps[chunk] = bits

    def _raise_low(self, low: int) -> None:
        was, self.low = self.low, low
        low = self.low = self._edge(low, False, self.end)
        chunk, offset = divmod(low, CHUNK)
        if chunk != was // CHUNK:
            self._forget(was // CHUNK, chunk)
            self._whole_chunks.cut(0, chunk)
        if chunk in self._bitmaps and not self._bitmaps[chunk] >> offset:
            del self._bitmaps[chunk]

    def _forget(self, first: int, end: int) -> None:
        """Drop the bitmaps of chunks [first, end): loop over the chunks or over the bitmaps, whichever are fewer."""
        bits = self._bitmaps
        if end - first < len(bits):
            for chunk in range(first, end):
                bits.pop(chunk, None)
        else:
            for chunk in [one for one in bits if first <= one < end]:
                del bits[chunk]

    def encode(self) -> bytes:
        # As in nearly all lanes of a snapshot.
        if not self._bitmaps and not self._whole_chunks.numbers:
            return _HEAD.pack(self.low, self.end, 0) + _NO_WHOLE
        parts = [_HEAD.pack(self.low, self.end, len(self._bitmaps))]
        for chunk, bits in sorted(self._bitmaps.items()):
            # Bits below `low` are cleared, because the bytes must not depend on the order of settlements.
            below = max(0, self.low - chunk * CHUNK)
            kept = bits >> below << below
            parts.append(_BITMAP.pack(chunk, kept.to_bytes(CHUNK // 8, "little")))
        return b"".join(parts) + self._whole_chunks.encode()

    @classmethod
    def decode(cls, data: bytes) -> Settled:
        """Raises ValueError for bytes that no `encode` has written."""
        if len(data) < _HEAD.size:
            raise ValueError(f"truncated settlements of {len(data)} bytes")
        made = cls()
        made.low, made.end, count = _HEAD.unpack_from(data)
        whole_at = _HEAD.size + count * _BITMAP.size
        if len(data) < whole_at:
            raise ValueError(f"{len(data)} bytes do not hold {count} bitmaps")
        made._whole_chunks = Ranges.decode(data[whole_at:])
        last_chunk, data_end = made.low // CHUNK - 1, made.low
        for chunk, packed in _BITMAP.iter_unpack(data[_HEAD.size : whole_at]):
            bits = int.from_bytes(packed, "little")
            if chunk <= last_chunk or bits in (0, _FULL) or made._is_whole(chunk):
                raise ValueError(f"invalid bitmap of chunk {chunk}")
            last_chunk, data_end = chunk, max(data_end, chunk * CHUNK + bits.bit_length())
            made._bitmaps[chunk] = bits
        for start, end, number in made._whole_chunks:
            if number != 1 or start * CHUNK <= made.low:
                raise ValueError(f"invalid chunks {start} to {end}")
            data_end = max(data_end, end * CHUNK)
        low_bits = made._bitmaps.get(made.low // CHUNK, 0)
        if data_end != made.end or low_bits & ((2 << made.low % CHUNK) - 1):
            raise ValueError(
                f"settled up to {made.end} according to the header, but up to {data_end} in the data"
            )
        return made
