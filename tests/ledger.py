"""What a client of a broker knows for certain, and what follows from it, whatever was killed when."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b


def payload(number: int) -> bytes:
    """Bytes that only this number has, of a length that differs from number to number."""
    digest = blake2b(number.to_bytes(8, "big"), digest_size=16).digest()
    return number.to_bytes(8, "big") + digest * (1 + number % 29)


def number_of(data: bytes) -> int:
    """Raises AssertionError: nobody has published that."""
    number = int.from_bytes(data[:8], "big")
    assert data == payload(number), "a message that nobody has published"
    return number


@dataclass
class Ledger:
    """Of one queue."""

    confirmed: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    """Acked, and the broker said that this is on disk."""
    seen: list[int] = field(default_factory=list)
    """For the first time, in that order."""
    _known: set[int] = field(default_factory=set)
    redelivered: int = 0

    def delivered(self, number: int) -> None:
        assert number not in self.settled, f"message {number} was settled, and came back"
        if number in self._known:
            self.redelivered += 1
        else:
            self._known.add(number)
            self.seen.append(number)

    @property
    def missing(self) -> set[int]:
        return self.confirmed - self._known

    def check(self) -> None:
        assert not self.missing, "confirmed, and never delivered"
        assert self.seen == sorted(self.seen), "delivered in the order of publishing"
