"""When messages expire, of those with a time of their own.

It is kept as the log positions of runs are (index.py), with the time in their place: ranges of messages that
expire together, and few bytes for each where there are many. A message may be there for a thousandth of its
time longer than it was given, so that those that came one after the other expire together.

Bytes (`encode`): what `Index` writes. Those of before, which `Ranges` has written, are read as well; what
`Index` writes never has their length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .block import Pieces
from .index import Index
from .ranges import Ranges

SHARE = 1 << 10
"""Of the time that a message is given, by which it may be there longer."""


def expiry_us(time_us: int, ttl_us: int) -> int:
    """When a message that came at this time expires: that much later, or little more."""
    step = _step_us(ttl_us)
    return -(-(time_us + ttl_us) // step) * step


def expiries_us(
    times_us: Iterable[int], ttls_us: Iterable[int | None], known: Iterable[int | None]
) -> list[int]:
    """As `expiry_us` of each; 0 where there is no time to live.

    Args:
        known: what times to live there are.
    """
    lives = {ttl_us: (ttl_us, _step_us(ttl_us or 0)) for ttl_us in known}
    return [
        0 if ttl_us is None else -(-(time_us + ttl_us) // step_us) * step_us
        for time_us, (ttl_us, step_us) in zip(
            times_us, map(lives.__getitem__, ttls_us), strict=True
        )
    ]


def _step_us(ttl_us: int) -> int:
    return max(1, ttl_us // SHARE)


class Expiries:
    __slots__ = ("_end", "_expires_us", "_ranges", "_start")

    def __init__(self) -> None:
        self._ranges = Index()
        self._start = self._end = 0  # The last range, not among these yet,
        self._expires_us = -1  # and when it expires.

    def __bool__(self) -> bool:
        """Whether any message has, or had, a time of its own to expire at."""
        return self._start < self._end or bool(self._ranges)

    def put(self, start: int, end: int, expires_us: int) -> None:
        """Messages [start, end), behind all there are, expire then."""
        if start == self._end and expires_us == self._expires_us:
            self._end = end
        else:
            self._close()
            self._start, self._end, self._expires_us = start, end, expires_us

    def put_all(self, starts: Sequence[int], end: int, expires_us: Sequence[int]) -> None:
        """As `put` from each of these starts to the next, the last one to `end`; 0: they never expire."""
        for start, stop, when_us in zip(starts, (*starts[1:], end), expires_us, strict=True):
            if (
                when_us == self._expires_us and start == self._end
            ):  # As `put`, without a call for most.
                self._end = stop
            elif when_us:
                self.put(start, stop, when_us)

    def _close(self) -> None:
        """The last range will not become longer."""
        if self._start < self._end:
            self._ranges.append(self._start, self._end - self._start, self._expires_us, 0)
            self._start = self._end

    def around(self, at: int, end: int) -> tuple[int, int]:
        """When the message `at` expires, 0: never; and up to where, `end` at most, others do with it."""
        if self._start <= at < self._end:
            return self._expires_us, min(end, self._end)
        run = self._ranges.find(at)
        return (0, end) if run is None else (run.position, min(end, run.first + run.count))

    def drop_before(self, sequence: int) -> None:
        """Those of earlier messages are of no use any more."""
        self._ranges.drop_before(sequence)

    def encode(self) -> Pieces:
        """In pieces, which stay as they are."""
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
