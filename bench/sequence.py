"""Checks what arrived by sequence: lost, duplicated, out of order, damaged.

    Ring      distinct payloads, made before the clock starts and sent over and over
    Follower  compares every received payload with the ring: cheap while all is well
    Tally     which sequences of 0..n-1 were seen, exactly

A rate is worth printing only if every message arrived once and in order, so each receiver compares whole payloads while
the clock runs, with raw pyzmq as with the mesh. Comparing a list of payloads with a slice of the ring costs 15 ns per
message of 100 B and about 100 ns at 1 KB; making payloads with a sequence of their own while the clock runs would cost
more on both sides, and check less.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SEQUENCE_BYTES = 8
RING_COUNT = 4000
"""Distinct payloads: 4 MB at 1 KB, more than the L2 cache of a core, so that no payload stays in it."""
TURNS_PER_RING = 32
RING_BYTES_MAX, RING_COUNT_MIN = 256 << 20, 8


class Tally:
    """The sequences that were seen. `add` takes them in any order, any number of times."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self._end = 0
        self.received = 0
        self.reordered = 0

    def add(self, sequence: int) -> None:
        self.add_range(sequence, sequence + 1)

    def add_range(self, start: int, end: int) -> None:
        """Add sequences start..end-1, which arrived in this order."""
        assert 0 <= start <= end, "sequences count up from 0"
        if start < self._end and not self._seen[start]:
            self.reordered += end - start
        if end > self._end:
            self._seen.extend(bytes(end - self._end))
            self._end = end
        self._seen[start:end] = b"\x01" * (end - start)
        self.received += end - start

    @property
    def distinct(self) -> int:
        return self._seen.count(1)

    @property
    def duplicated(self) -> int:
        return self.received - self.distinct

    def lost(self, sent: int) -> int:
        """Return how many of the first `sent` sequences never arrived."""
        return sent - self._seen.count(1, 0, sent)

    def report(self, sent: int) -> dict[str, int]:
        return {
            "received": self.received,
            "lost": self.lost(sent),
            "duplicated": self.duplicated,
            "reordered": self.reordered,
        }


def ring_count(topics: int, size_bytes: int) -> int:
    """Return how many payloads the ring needs: enough for a strand for each topic; few if they are large."""
    if topics > 1:
        return max(RING_COUNT, topics * TURNS_PER_RING)
    return max(min(RING_COUNT, RING_BYTES_MAX // size_bytes), RING_COUNT_MIN)


class Ring:
    """`count` distinct payloads of `size_bytes`: sequence s has payload s modulo `count`."""

    def __init__(self, size_bytes: int, count: int = RING_COUNT) -> None:
        assert size_bytes >= SEQUENCE_BYTES, "the sequence must fit"
        fill = random.Random(size_bytes)
        rest = size_bytes - SEQUENCE_BYTES
        self.size_bytes = size_bytes
        self._hold(
            [
                index.to_bytes(SEQUENCE_BYTES, "little") + fill.randbytes(rest)
                for index in range(count)
            ]
        )

    def _hold(self, payloads: list[bytes]) -> None:
        self.payloads, self.count = payloads, len(payloads)
        self._twice = payloads * 2
        self._places: dict[bytes, int] = {}

    def slice(self, start: int, count: int) -> list[bytes]:
        """Return the `count` payloads of the sequences from `start` on."""
        at = start % self.count
        if count <= self.count:
            return self._twice[at : at + count]
        return [self.payloads[(at + step) % self.count] for step in range(count)]

    def strand(self, first: int, step: int, in_row: int = 1) -> Ring:
        """Return the ring of one of `step` topics, where each topic in turn gets `in_row` payloads."""
        assert self.count % (step * in_row) == 0, "a strand must close"
        ring = object.__new__(Ring)
        ring.size_bytes = self.size_bytes
        ring._hold(
            [
                payload
                for place, payload in enumerate(self.payloads)
                if place // in_row % step == first
            ]
        )
        return ring

    def place(self, payload: bytes) -> int | None:
        """Return the place of `payload` in the ring, or None if it is not one of the ring's."""
        if not self._places:
            self._places = {known: place for place, known in enumerate(self.payloads)}
        return self._places.get(payload)


class Follower:
    """Checks one publisher's payloads as they arrive.

    A jump in the sequence is taken as the shortest one that the ring allows. A loss of more than half a ring at once is
    therefore recorded at the wrong sequences, but never missed: the sequences seen are compared with those sent.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._next = 0
        self.tally = Tally()
        self.damaged = 0
        """Payloads that are not in the ring."""

    @property
    def received(self) -> int:
        return self.tally.received + self.damaged

    def take(self, payloads: Sequence[bytes]) -> None:
        """Check the next payloads, in the order in which they were received."""
        count = len(payloads)
        if payloads == self._ring.slice(self._next, count):
            self.tally.add_range(self._next, self._next + count)
            self._next += count
            return
        for payload in payloads:
            self._find(payload)

    def _find(self, payload: bytes) -> None:
        place = self._ring.place(payload)
        if place is None:
            self.damaged += 1
            return
        count = self._ring.count
        ahead = (place - self._next) % count
        if ahead > count // 2 and self._next >= count - ahead:
            ahead -= count
        self.tally.add(self._next + ahead)
        self._next = max(self._next, self._next + ahead + 1)

    def report(self, sent: int) -> dict[str, int]:
        return {**self.tally.report(sent), "damaged": self.damaged}


def report_of(ring: Ring, payloads: Sequence[bytes], sent: int) -> dict[str, int]:
    """Compare `payloads`, all that was received and in that order, with the first `sent` payloads of `ring`."""
    follower = Follower(ring)
    follower.take(payloads)
    return follower.report(sent)
