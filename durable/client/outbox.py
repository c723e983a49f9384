"""What a publisher has sent and not been answered: kept as packed, to be sent again, word for word.

A part that comes again is tried again, refused messages and all. So what the broker says of one counts when
it has decided the whole part, and is forgotten if the connection is lost before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import DurableError
from ..protocol.failures import put_together
from ..protocol.parts import Refusal


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who wants to know what becomes of sequences [`first`, `end`)."""

    first: int
    end: int
    wake: Callable[[], None]
    done: bool = False
    error: DurableError | None = None
    """Why nobody will ever know what became of some of them."""
    refusal: DurableError | None = None
    """The first one."""
    refusals: list[tuple[int, int, str]] = field(default_factory=list)
    """From which sequence to which, and the name of the error's class."""

    @property
    def refused(self) -> Counter[str]:
        """Messages, by kind of refusal."""
        found = Counter[str]()
        for low, high, kind in self.refusals:
            found[kind] += high - low
        return found


@dataclass(slots=True)
class Part:
    """Packed batches with sequences [`first`, `end`)."""

    first: int
    end: int
    data: bytes = field(repr=False)


class Outbox:
    """Of one publisher."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._waiters: deque[Waiter] = deque()
        self._left_out: deque[tuple[int, int]] = deque()
        """Sequences that no message has, in order."""
        self.size_bytes = 0
        self.heard = 0
        """Up to which sequence the broker has ever said something."""
        self.confirmed = 0
        """Everything before this sequence is decided; no part of which something is not is behind it."""
        self.refused = 0
        """Messages, of all that was decided."""
        self._refusals: deque[Refusal] = deque()
        """Of parts that are not decided yet."""
        self._untold: tuple[DurableError, Counter[str]] | None = None
        """The first refusal that nobody waited for, and how many messages there were of each kind."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def count(self) -> int:
        """Of parts."""
        return len(self._parts)

    @property
    def parts(self) -> Sequence[Part]:
        return tuple(self._parts)

    def sent(self, part: Part) -> None:
        self._parts.append(part)
        self.size_bytes += len(part.data)

    def leave_out(self, first: int, end: int) -> None:
        """No message has sequences [`first`, `end`), which are behind all that were given before."""
        self._left_out.append((first, end))

    def undecided(self, first: int, end: int) -> int:
        """Messages with sequences [`first`, `end`) that are not confirmed; those given, sent or not."""
        low = max(first, self.confirmed)
        return max(end - low, 0) - _shared(self._left_out, low, end)

    def unknown(self, waiter: Waiter) -> int:
        """Messages of its own of which nobody has said anything."""
        spans = ((low, high) for low, high, _ in waiter.refusals)
        ahead = _shared(spans, self.confirmed, waiter.end)
        return self.undecided(waiter.first, waiter.end) - ahead

    def wait_for(self, waiter: Waiter) -> None:
        """Waiters come in the order of their `end`, none of which is confirmed."""
        self._waiters.append(waiter)

    def decided(self, sequence: int, refusals: Sequence[Refusal]) -> None:
        """What the broker says: all before `sequence`; stored, but for the refused ones."""
        self.heard = max(self.heard, sequence)
        parts = self._parts
        while parts and parts[0].end <= sequence:
            self.size_bytes -= len(parts.popleft().data)
        kept_from = min(parts[0].first, sequence) if parts else sequence
        self.confirmed = max(self.confirmed, kept_from)
        self._refusals += refusals
        while self._refusals and (not parts or self._refusals[0].first < parts[0].first):
            self._refuse(self._refusals.popleft())
        while self._waiters and self._waiters[0].end <= self.confirmed:
            self._finish(self._waiters.popleft())
        while self._left_out and self._left_out[0][1] <= self.confirmed:
            self._left_out.popleft()

    def again(self) -> None:
        """All parts that are kept are sent once more: what has been refused of them may be stored."""
        self._refusals.clear()

    def _refuse(self, refusal: Refusal) -> None:
        end = refusal.first + refusal.count
        self.refused += refusal.count
        untold = [(refusal.first, end)]
        for waiter in self._overlapping(refusal.first, end):
            low, high = max(refusal.first, waiter.first), min(end, waiter.end)
            waiter.refusals.append((low, high, refusal.code))
            if waiter.refusal is None:
                waiter.refusal = put_together(refusal.code, refusal.details)
            untold = [piece for one in untold for piece in _without(one, waiter)]
        count = sum(high - low for low, high in untold)
        if not count:
            return
        if self._untold is None:
            self._untold = put_together(refusal.code, refusal.details), Counter()
        self._untold[1][refusal.code] += count

    def forget(self, waiters: Iterable[Waiter]) -> None:
        """Nobody waits any more, so what is refused of theirs is told to whoever asks next."""
        for waiter in waiters:
            if waiter.done:
                continue
            self._waiters.remove(waiter)
            if waiter.refusal is not None:
                first, counts = self._untold or (waiter.refusal, Counter())
                self._untold = first, counts + waiter.refused

    def take_untold(self) -> tuple[DurableError, Counter[str]] | None:
        """What was refused while nobody waited for it: the first reason, and how many of each kind."""
        untold, self._untold = self._untold, None
        return untold

    def _overlapping(self, first: int, end: int) -> Iterator[Waiter]:
        return (one for one in self._waiters if one.first < end and first < one.end)

    def fail(self, error: Callable[[int], DurableError]) -> None:
        """Nobody will ever know: `error` of so many messages, to everybody who waits."""
        self._parts.clear()  # They do not come again: what was refused of them stays so.
        self.decided(self.confirmed, ())
        self.size_bytes = 0
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = error(self.unknown(waiter))
            self._finish(waiter)

    @staticmethod
    def _finish(waiter: Waiter) -> None:
        waiter.done = True
        waiter.wake()


def _shared(spans: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """How many sequences of [`low`, `high`) are in one of these."""
    return sum(max(min(end, high) - max(first, low), 0) for first, end in spans)


def _without(span: tuple[int, int], waiter: Waiter) -> Iterator[tuple[int, int]]:
    """What of [low, high) is not the waiter's."""
    low, high = span
    if low < min(high, waiter.first):
        yield low, min(high, waiter.first)
    if max(low, waiter.end) < high:
        yield max(low, waiter.end), high
