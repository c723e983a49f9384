"""When the messages of a lane came, at a cost that does not grow with their number.

A mark means: messages from this sequence on came between these two times. It covers at least 50 ms. When there
are too many marks, neighbours are joined, so times get coarser as a backlog gets older: 4096 marks over a day
cover 21 seconds each, or up to twice that. For expiry a message never counts as older than it is.

Messages that recovery has read came before the start, whatever the clock said then: if it was ahead, they count as
having come at the start.

Bytes (`encode`), little endian: u32 count; sequences u64; first times i64; last times i64.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

STEP_US = 50_000
MARKS_MAX = 4096
JOINED_MAX = MARKS_MAX * 3 // 4
_STALE_MIN = 64
_NO_SEQUENCES, _NO_TIMES = array("Q"), array("q")
"""Shared by all lanes that never had a message; never written to."""


class ArrivalTimes:
    __slots__ = ("_firsts", "_lasts", "_recovered_end", "_recovered_us", "_sequences", "_step_us")

    def __init__(self) -> None:
        self._sequences, self._firsts, self._lasts = _NO_SEQUENCES, _NO_TIMES, _NO_TIMES
        self._step_us = STEP_US
        self._recovered_end = self._recovered_us = 0  # All before that sequence had come by then.

    def end_recovery(self, end: int, now_us: int) -> None:
        """All messages before `end` came before now."""
        self._recovered_end, self._recovered_us = end, now_us

    def note(self, sequence: int, time_us: int) -> None:
        """Note that messages from `sequence` on came at this time, up to the next note."""
        if self._sequences and 0 <= time_us - self._firsts[-1] < self._step_us:
            if time_us > self._lasts[-1]:
                self._lasts[-1] = time_us
            return
        if self._sequences is _NO_SEQUENCES:
            self._unshare()
        self._sequences.append(sequence)
        self._firsts.append(time_us)
        self._lasts.append(time_us)
        if len(self._sequences) > MARKS_MAX:
            self._coarsen()

    def note_all(self, sequences: Sequence[int], times_us: Sequence[int]) -> None:
        """As `note` of each of these."""
        at, count = 0, len(times_us)
        rising = sorted(times_us) == times_us
        while at < count:
            self.note(sequences[at], times_us[at])
            end = bisect_left(times_us, self._firsts[-1] + self._step_us, at) if rising else at + 1
            if end > at + 1:  # All of these belong to the same mark.
                self.note(sequences[end - 1], times_us[end - 1])
            at = max(end, at + 1)

    def _unshare(self) -> None:
        """Replace the shared empty arrays before something is put in."""
        self._sequences, self._firsts, self._lasts = array("Q"), array("q"), array("q")

    def _coarsen(self) -> None:
        """Join marks that lie within one step of each other, doubling the step until there is room for more.

        Marks are joined by their times and not in pairs, because those loaded at a start are coarser than newer ones.
        """
        sequences, firsts, lasts = self._sequences, self._firsts, self._lasts
        while len(sequences) > JOINED_MAX:
            self._step_us *= 2
            kept = 0
            for at in range(1, len(sequences)):
                first, last = min(firsts[kept], firsts[at]), max(lasts[kept], lasts[at])
                if last - first >= self._step_us:
                    kept += 1
                    sequences[kept], first, last = sequences[at], firsts[at], lasts[at]
                firsts[kept], lasts[kept] = first, last
            del sequences[kept + 1 :], firsts[kept + 1 :], lasts[kept + 1 :]

    def _mark_index(self, sequence: int) -> int:
        return max(0, bisect_right(self._sequences, sequence) - 1)

    def earliest_us(self, sequence: int) -> int:
        """Return a lower bound of the time at which the message came."""
        return self._firsts[self._mark_index(sequence)]

    def first_after(self, time_us: int, start: int, end: int) -> int:
        """Return the first sequence in [start, end) that may have come later than `time_us`; or `end`."""
        at = self._mark_index(start)
        while at < len(self._lasts) and self._lasts[at] <= time_us:
            at += 1
        return min(end, max(start, self._sequences[at])) if at < len(self._lasts) else end

    def first_younger(self, time_us: int, start: int, end: int) -> int:
        """As `first_after`, with what recovery has read counted as no later than the start."""
        if time_us >= self._recovered_us:
            start = max(start, min(self._recovered_end, end))
        return self.first_after(time_us, start, end)

    def clock_ahead_us(self, sequence: int) -> int:
        """Return by how much the clock was ahead when this message came, as far as is known: a message that was there
        at the start cannot have come after it."""
        if sequence >= self._recovered_end:
            return 0
        return max(0, self.earliest_us(sequence) - self._recovered_us)

    def same_clock_end(self, start: int, end: int) -> int:
        """Return up to where in [start, end) messages came with the clock as far ahead as for the first one."""
        if start >= self._recovered_end:
            return end
        return self.next_mark(start, min(end, self._recovered_end))

    def next_mark(self, sequence: int, end: int) -> int:
        """Return where the next mark begins, at most `end`: earlier messages came in the same span of time."""
        at = bisect_right(self._sequences, sequence)
        return min(end, self._sequences[at]) if at < len(self._sequences) else end

    def drop_before(self, sequence: int) -> None:
        """Forget marks that only earlier messages need, if that is cheap."""
        if len(self._sequences) > _STALE_MIN:
            stale = self._mark_index(sequence)
            if 2 * stale > len(self._sequences):
                del self._sequences[:stale], self._firsts[:stale], self._lasts[:stale]
                if len(self._sequences) <= _STALE_MIN:
                    self._step_us = STEP_US

    def encode(self) -> bytes:
        head = len(self._sequences).to_bytes(4, "little")
        parts = (self._sequences, self._firsts, self._lasts)
        return head + b"".join(part.tobytes() for part in parts)

    @classmethod
    def decode(cls, data: bytes) -> ArrivalTimes:
        """Raises ValueError for bytes that no `encode` has written."""
        count = int.from_bytes(data[:4], "little")
        if len(data) != 4 + 24 * count:
            raise ValueError(f"{len(data)} bytes do not hold {count} marks")
        made = cls()
        made._unshare()
        made._sequences.frombytes(data[4 : 4 + 8 * count])
        made._firsts.frombytes(data[4 + 8 * count : 4 + 16 * count])
        made._lasts.frombytes(data[4 + 16 * count :])
        for at, (first, last) in enumerate(zip(made._firsts, made._lasts, strict=True)):
            if first > last or (at and made._sequences[at - 1] >= made._sequences[at]):
                raise ValueError(f"mark {at} of {count} is invalid")
        return made
