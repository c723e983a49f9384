"""Expiries of messages that have a time to live of their own.

Expiries are kept as the log positions of runs are (index.py), with the time in the position's place: ranges of
messages that expire together, which take few bytes each where there are many. A message may live longer than it
was given, by a thousandth of that, so that messages that came one after the other expire together.

Bytes (`encode`): what `Index` writes. The older format, which `Ranges` wrote, can be decoded as well; the two
are told apart by the length, because `Index` never writes bytes of that length.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import compress, islice
from operator import ne, sub

from .block import Pieces
from .index import Index
from .ranges import Ranges

TTL_DIVISOR = 1 << 10
"""A message may live longer than its time to live, by at most 1 / TTL_DIVISOR of it."""
_ONE_BY_ONE_MAX = 16
"""Up to this number, ranges are put in one by one: putting them in together is not worth it."""


def expiry_us(time_us: int, ttl_us: int) -> int:
    """Return when a message that came at `time_us` expires: after its time to live, rounded up a little."""
    step = _step_us(ttl_us)
    return -(-(time_us + ttl_us) // step) * step


def expiries_us(
    times_us: Sequence[int], headers: Sequence[bytes], ttls_us: Mapping[bytes, int | None]
) -> list[int]:
    """Return `expiry_us` for each message; 0 where its headers set no time to live.

    Args:
        ttls_us: time to live by encoded headers.
    """
    first_us, last_us = (
        {
            one: 0 if ttl_us is None else expiry_us(time_us, ttl_us)
            for one, ttl_us in ttls_us.items()
        }
        for time_us in (min(times_us), max(times_us))
    )
    if first_us == last_us:  # The common case: all messages came within a fraction of a second.
        return [*map(first_us.__getitem__, headers)]
    lives = {one: (ttl_us, _step_us(ttl_us or 0)) for one, ttl_us in ttls_us.items()}
    return [
        0 if ttl_us is None else -(-(time_us + ttl_us) // step_us) * step_us
        for time_us, (ttl_us, step_us) in zip(
            times_us, map(lives.__getitem__, headers), strict=True
        )
    ]


def _step_us(ttl_us: int) -> int:
    return max(1, ttl_us // TTL_DIVISOR)


class Expiries:
    __slots__ = ("_end", "_expires_us", "_ranges", "_start")

    def __init__(self) -> None:
        self._ranges = Index()
        # The last range, which may still grow, so it is not in `_ranges` yet; and when it expires.
        self._start = self._end = 0
        self._expires_us = -1

    def __bool__(self) -> bool:
        """Whether any message has, or had, an expiry of its own."""
        return self._start < self._end or bool(self._ranges)

    def put(self, start: int, end: int, expires_us: int) -> None:
        """Set the expiry of messages [start, end), which come after all others."""
        if start == self._end and expires_us == self._expires_us:
            self._end = end
        else:
            self._close()
            self._start, self._end, self._expires_us = start, end, expires_us

    def put_all(self, starts: Sequence[int], end: int, expires_us: Sequence[int]) -> None:
        """As `put` of each range, from one of these starts to the next, the last one to `end`; 0: it never expires."""
        changes = [True, *map(ne, islice(expires_us, 1, None), expires_us)]
        firsts, whens_us = [*compress(starts, changes)], [*compress(expires_us, changes)]
        if len(firsts) > _ONE_BY_ONE_MAX and all(whens_us):
            at = self._put_pairs(firsts, whens_us)
            firsts, whens_us = firsts[at:], whens_us[at:]
        for start, stop, when_us in zip(firsts, (*firsts[1:], end), whens_us, strict=True):
            if when_us:
                self.put(start, stop, when_us)

    def _put_pairs(self, firsts: list[int], expires_us: list[int]) -> int:
        """Put in ranges that reach from each of `firsts` to the next, in pairs; return how many were put in.

        Two ranges make one stretch, as they mostly would with `put`. The first range is put in alone, because it may
        continue the last one here; the last one, which may still grow, is left to the caller. If the others differ in
        length, only the first is put in.
        """
        self.put(firsts[0], firsts[1], expires_us[0])
        count, end = firsts[2] - firsts[1], 1 + (len(firsts) - 2) // 2 * 2
        if firsts[1 : end + 1] != [*range(firsts[1], firsts[end] + 1, count)]:
            return 1
        self._close()
        pairs = (end - 1) // 2
        whens_us = array("q", expires_us[1:end])
        self._ranges.append_rows(
            (
                array("Q", firsts[1:end:2]),
                array("q", [count]) * pairs,
                whens_us[::2],
                array("q", map(sub, whens_us[1::2], whens_us[::2])),
                array("q", [0]) * pairs,
                array("q", [2]) * pairs,
            )
        )
        return end

    def _close(self) -> None:
        """Move the last range into `_ranges`: it will not grow any more."""
        if self._start < self._end:
            self._ranges.append(self._start, self._end - self._start, self._expires_us, 0)
            self._start = self._end

    def lookup(self, at: int, end: int) -> tuple[int, int]:
        """Return when message `at` expires (0: never), and up to where, at most `end`, messages expire with it."""
        if self._start <= at < self._end:
            return self._expires_us, min(end, self._end)
        run = self._ranges.find(at)
        return (0, end) if run is None else (run.position, min(end, run.first + run.count))

    def drop_before(self, sequence: int) -> None:
        """Forget earlier messages."""
        self._ranges.drop_before(sequence)

    def encode(self) -> Pieces:
        """Return the bytes in pieces, which later changes do not alter."""
        self._close()
        return self._ranges.encode()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Expiries:
        """Raises ValueError for bytes that no `encode` has written."""
        made = cls()
        if len(data) == 4 + 24 * int.from_bytes(data[:4], "little"):
            for start, end, expires_us in Ranges.decode(bytes(data)):
                made.put(start, end, expires_us)
        else:
            made._ranges = Index.decode(data)
        return made
