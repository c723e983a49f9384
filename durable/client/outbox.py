"""A publisher's unconfirmed parts, kept as packed so that they can be sent again unchanged.

A part that is sent again is decided anew, its refused messages included. So a refusal takes effect only when
the broker has decided the whole part, and is dropped if the connection breaks before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import DurableError
from ..protocol.error_codec import rebuild_error
from ..protocol.parts import Refusal


@dataclass(slots=True, eq=False)
class Waiter:
    """A task waiting for sequences [`first`, `end`) to be decided; `wake` is called when they are."""

    first: int
    end: int
    wake: Callable[[], None]
    done: bool = False
    error: DurableError | None = None
    """Why the outcome of some of them will never be known."""
    refusal: DurableError | None = None
    """The first refusal among them."""
    refusals: list[tuple[int, int, str]] = field(default_factory=list)
    """First sequence, end (exclusive), and name of the error's class."""

    @property
    def refused(self) -> Counter[str]:
        """Number of refused messages by class of error."""
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
    """The unconfirmed parts of one publisher, and the tasks waiting for them."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._waiters: deque[Waiter] = deque()
        self._skipped: deque[tuple[int, int]] = deque()
        """Ranges of sequences that no message uses, in order."""
        self.size_bytes = 0
        self.latest_confirm = 0
        """The highest sequence up to which any confirm has come."""
        self.confirmed = 0
        """Everything before this sequence is decided. It never lies inside a part that is decided only partly."""
        self.refused = 0
        """How many of the decided messages were refused."""
        self._refusals: deque[Refusal] = deque()
        """Refusals in parts that are not wholly decided yet."""
        self._unreported: tuple[DurableError, Counter[str]] | None = None
        """Refusals that nobody waited for: the first one, and the number of messages by class of error."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self._parts)

    @property
    def parts(self) -> Sequence[Part]:
        return tuple(self._parts)

    def add(self, part: Part) -> None:
        self._parts.append(part)
        self.size_bytes += len(part.data)

    def skip(self, first: int, end: int) -> None:
        """Note that no message uses sequences [`first`, `end`); they lie behind all that were used before."""
        self._skipped.append((first, end))

    def undecided(self, first: int, end: int) -> int:
        """Return how many messages with sequences [`first`, `end`) are not confirmed, whether sent or not."""
        low = max(first, self.confirmed)
        return max(end - low, 0) - _overlap(self._skipped, low, end)

    def unknown(self, waiter: Waiter) -> int:
        """Return how many of the waiter's messages are neither confirmed nor refused."""
        spans = ((low, high) for low, high, _ in waiter.refusals)
        refused = _overlap(spans, self.confirmed, waiter.end)
        return self.undecided(waiter.first, waiter.end) - refused

    def wait_for(self, waiter: Waiter) -> None:
        """Add a waiter. Its `end` is not confirmed yet, and is not below that of the waiters before."""
        self._waiters.append(waiter)

    def handle_confirm(self, sequence: int, refusals: Sequence[Refusal]) -> None:
        """Take a confirm: everything before `sequence` is decided, and stored unless it was refused."""
        self.latest_confirm = max(self.latest_confirm, sequence)
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
        while self._skipped and self._skipped[0][1] <= self.confirmed:
            self._skipped.popleft()

    def prepare_resend(self) -> None:
        """All parts are about to be sent again: drop their refusals, since those messages may be stored this time."""
        self._refusals.clear()

    def _refuse(self, refusal: Refusal) -> None:
        end = refusal.first + refusal.count
        self.refused += refusal.count
        for waiter in self._overlapping(refusal.first, end):
            low, high = max(refusal.first, waiter.first), min(end, waiter.end)
            waiter.refusals.append((low, high, refusal.code))
            if waiter.refusal is None:
                waiter.refusal = rebuild_error(refusal.code, refusal.details)
        reason = rebuild_error(refusal.code, refusal.details)
        self._keep_unreported(refusal.first, end, refusal.code, reason)

    def _keep_unreported(self, first: int, end: int, kind: str, reason: DurableError) -> None:
        """Keep for `take_unreported` what is refused of [`first`, `end`) and nobody waits for."""
        unreported = [(first, end)]
        for waiter in self._overlapping(first, end):
            unreported = [piece for one in unreported for piece in _subtract(one, waiter)]
        if unreported:
            self._unreported = self._unreported or (reason, Counter())
            self._unreported[1][kind] += sum(high - low for low, high in unreported)

    def forget(self, waiters: Iterable[Waiter]) -> None:
        """Remove waiters that gave up. Refusals that no other waiter knows of are kept for `take_unreported`."""
        for waiter in waiters:
            if not waiter.done:
                self._waiters.remove(waiter)
            if waiter.refusal is not None:
                for first, end, kind in waiter.refusals:
                    self._keep_unreported(first, end, kind, waiter.refusal)

    def take_unreported(self) -> tuple[DurableError, Counter[str]] | None:
        """Return, once, what was refused while nobody waited: the first error, and messages by class of error."""
        unreported, self._unreported = self._unreported, None
        return unreported

    def _overlapping(self, first: int, end: int) -> Iterator[Waiter]:
        return (one for one in self._waiters if one.first < end and first < one.end)

    def fail(self, error: Callable[[int], DurableError]) -> None:
        """Drop all parts, and wake each waiter with `error(count)`, `count` being its messages of unknown outcome."""
        self._parts.clear()  # They are not sent again, so `handle_confirm` may now report their refusals.
        self.handle_confirm(self.confirmed, ())
        self.size_bytes = 0
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = error(self.unknown(waiter))
            self._finish(waiter)

    @staticmethod
    def _finish(waiter: Waiter) -> None:
        waiter.done = True
        waiter.wake()


def _overlap(spans: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """Return how many sequences of [`low`, `high`) lie in one of the spans."""
    return sum(max(min(end, high) - max(first, low), 0) for first, end in spans)


def _subtract(span: tuple[int, int], waiter: Waiter) -> Iterator[tuple[int, int]]:
    """Yield the parts of [low, high) outside the waiter's range."""
    low, high = span
    if low < min(high, waiter.first):
        yield low, min(high, waiter.first)
    if max(low, waiter.end) < high:
        yield max(low, waiter.end), high
