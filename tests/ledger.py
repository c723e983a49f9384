"""What a client of a broker knows for certain, and the checks that follow from it, whatever was killed and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b


def payload(number: int) -> bytes:
    """Return a payload that is unique to `number`; its length also depends on `number`."""
    digest = blake2b(number.to_bytes(8, "big"), digest_size=16).digest()
    return number.to_bytes(8, "big") + digest * (1 + number % 29)


def number_of(data: bytes) -> int:
    """Return the number of a payload. Raises AssertionError if nobody has published it."""
    number = int.from_bytes(data[:8], "big")
    assert data == payload(number), "a message that nobody has published"
    return number


@dataclass
class Ledger:
    """What is known of one queue."""

    confirmed: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    """Numbers that were acked, with the acks on disk according to the broker."""
    seen: list[int] = field(default_factory=list)
    """Numbers in the order of their first delivery."""
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


@dataclass
class StreamLedger:
    """What is known of one stream that keeps everything and of one of its cursors, by any reader."""

    confirmed: set[int] = field(default_factory=set)
    found: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By offset: the number, and how many are missing directly before it."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Offsets, by number."""
    _cursors: list[int] = field(default_factory=lambda: [0])
    """Offsets where the cursor may be: the one that is certainly on disk, then those stored since."""

    def began(self, offset: int) -> None:
        """A reader that resumes from the cursor was given this offset first."""
        assert offset in self._cursors, f"began at {offset}, the cursor is at {self._cursors}"

    def read(self, offset: int, number: int, lost: int) -> None:
        known = self.found.setdefault(offset, (number, lost))
        assert known == (number, lost), f"offset {offset} stands for two messages, or two gaps"
        twice = self.numbers.setdefault(number, offset)
        assert twice == offset, f"message {number} is at {twice} and at {offset}"

    def stored(self, offset: int) -> None:
        self._cursors.append(offset)

    def kept(self) -> None:
        """The reader's block was left, so the last stored offset is on disk."""
        del self._cursors[:-1]

    @property
    def missing(self) -> set[int]:
        return self.confirmed - self.numbers.keys()

    def check(self) -> None:
        assert not self.missing, "confirmed, and not in the stream"
        assert sorted(self.found) == list(range(len(self.found))), "no offset is left out"
