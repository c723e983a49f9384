"""One FIFO of messages: which are ready, which are out, how often each came back, and which are settled.

                        take                    settle
    enqueue ──> ready ─────────> out ────────────────────> settled
                  ^               │                           ^
                  └─── requeue ───┘      settle while ready ──┘

A message that is neither ready nor settled is out: unacked by a consumer, or waiting to be dead-lettered;
the lane does not know which. All messages from `_cursor` on are ready; ready messages below it came back.
Costs are per run and per range, never per message. A gap left by damaged records counts as settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from .arrival_times import ArrivalTimes
from .arrivals import Arrivals
from .block import Block, Pieces
from .expiries import Expiries
from .index import Index
from .journal import Journal
from .lane_bytes import decode_enqueued, decode_outcomes, encode_enqueued, encode_outcomes
from .ranges import Range, Ranges, Span
from .runs import Records, Run
from .settled import Settled

UNLIMITED = 1 << 62
_TIDY_EVERY = 1024


class Slice(NamedTuple):
    """Messages [first, first + count) of one run, each of which came back `returned` times."""

    run: Run
    first: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    returned: int
    size_bytes: int


class Lane:
    __slots__ = (
        "_arrival_times", "_cursor", "_expiries", "_logged", "_next_tidy", "_requeued",
        "_return_counts", "change_count", "id", "index", "journal", "next", "ready", "ready_bytes", "retired", "settled", "size_bytes",
    )  # fmt: skip

    def __init__(self, id: int, journal: Journal, *, logged: bool) -> None:  # noqa: A002
        self.id = id
        self._logged = logged
        self.journal = journal
        """Where the lane notes what has to be logged or carried out."""
        self.index, self.settled = Index(), Settled()
        self.next = 0
        """The sequence of the next message to be appended; ahead of `index.end` until that message is durable."""
        self.change_count = 0
        """Changes with everything that happens to the lane."""
        self.ready = self.ready_bytes = 0
        self.size_bytes = 0
        """Bytes of all messages that are not settled, ready or out."""
        self.retired = False
        """Its queue or stream is deleted: nothing is enqueued any more, and nothing is journalled."""
        self._cursor = 0
        self._requeued = Ranges()  # Ready messages below the cursor: requeued, or skipped.
        self._return_counts = Ranges()  # How often messages came back, if they ever did.
        self._expiries = Expiries()
        self._arrival_times = ArrivalTimes()
        self._next_tidy = _TIDY_EVERY

    def end_recovery(self, now_us: int) -> None:
        """End recovery: all of the log is read. What it brought came before now, whatever the clock said then."""
        self._arrival_times.end_recovery(self.index.end, now_us)
        self.index.drop_before(self.settled.low)  # Runs known to be settled before they were read.

    def enqueue(
        self, first: int, count: int, position: int, size_bytes: int, time_us: int,
        expires_us: int = 0,
    ) -> None:  # fmt: skip
        """Add one run, which is durable. `expires_us` 0: it never expires. Messages settled already stay settled."""
        self.change_count += 1
        index, end = self.index, first + count
        if first > index.end:
            self._skip(index.end, first)
        index.append(first, count, position, size_bytes)
        if end > self.next:
            self.next = end
        self._arrival_times.note(first, time_us)
        if expires_us:
            self._expiries.put(first, end, expires_us)
        if first < self.settled.end:
            self._enqueue_unsettled(Run(first, count, position, size_bytes))
            return
        self.ready += count
        self.ready_bytes += size_bytes
        self.size_bytes += size_bytes

    def enqueue_all(self, arrivals: Arrivals) -> None:
        """As `enqueue` of each of these runs."""
        first, end = arrivals.firsts[0], arrivals.end
        if first < self.settled.end:
            for run in arrivals.runs():
                self.enqueue(*run)
            return
        self.change_count += 1
        if first > self.index.end:
            self._skip(self.index.end, first)
        self.index.append_all(arrivals)
        self.next = max(self.next, end)
        self._arrival_times.note_all(arrivals.firsts, arrivals.times_us)
        if arrivals.expires_us is not None:
            self._expiries.put_all(arrivals.firsts, end, arrivals.expires_us)
        size_bytes = arrivals.size_bytes
        self.ready += end - first
        self.ready_bytes += size_bytes
        self.size_bytes += size_bytes

    def move(self, first: int, position: int) -> bool:
        """Set the log position of the run that begins at `first`. Return False if that run is not here.

        It counts as a change: an earlier checkpoint has the old log position, whose segment will be freed.
        """
        self.change_count += 1
        return self.index.move(first, position)

    def retire(self) -> None:
        """Mark the lane as deleted. What its consumers still do is journalled where nobody reads it."""
        self.retired = True
        self.journal = Journal()

    def _skip(self, start: int, end: int) -> None:
        """Count [start, end) as settled: a gap, in which no message will ever be."""
        if self._cursor < start:
            self._requeued.put(self._cursor, start)
        self._cursor = end
        self.settled.add(start, end)
        self._return_counts.cut(start, end)

    def _enqueue_unsettled(self, run: Run) -> None:
        """Recovery: add the unsettled messages of a run; the settlement of some was read before the run."""
        end = run.first + run.count
        if self._cursor < run.first:
            self._requeued.put(self._cursor, run.first)
        self._cursor = end
        if rest := [*self.settled.unsettled(run.first, end)]:
            size = sum(run.size_of(low, high) for low, high in rest)
            self.size_bytes += size
            self._make_ready(rest, size)
        if self.settled.covers(run.first, end):
            self.journal.released.append(
                Records(range(run.position, run.position + 1), run.count, run.size_bytes)
            )

    def take(self, count_max: int = UNLIMITED, bytes_max: int = UNLIMITED) -> Slice | None:
        """Take the lowest ready messages: of one run, with equal returns; at least one, however large it is."""
        head = self.head()
        if head is None:
            return None
        run, start, count, returned, size = head
        if count > count_max or size > bytes_max:
            count = max(1, min(count_max, run.fitting(start, bytes_max), count))
            size = run.size_of(start, start + count)
            head = Slice(run, start, count, returned, size)
        if self._requeued.numbers:
            self._requeued.cut(start, start + count)
        else:
            self._cursor = start + count
        self.ready -= count
        self.ready_bytes -= size
        return head

    def head(self) -> Slice | None:
        """Return what `take` would return without limits, but do not take it."""
        if not self.ready:
            return None
        start, end = (
            self._requeued.first() if self._requeued.numbers else (self._cursor, self.index.end)
        )
        run = self.index.find(start)
        assert run is not None, f"message {start} is ready and in a run"
        end = min(end, run.first + run.count)
        returned = 0
        if self._return_counts.numbers:
            returned, end = self._return_counts.lookup(start, end)
        return Slice(run, start, end - start, returned, run.size_of(start, end))

    def ready_ranges(self, before: int = UNLIMITED) -> list[tuple[int, int]]:
        """Return the ranges that are ready before this sequence, in order."""
        ranges = [(start, min(end, before)) for start, end, _ in self._requeued if start < before]
        if self._cursor < min(self.index.end, before):
            ranges.append((self._cursor, min(self.index.end, before)))
        return ranges

    def take_range(self, start: int, end: int) -> None:
        """Take the messages [start, end), all of which must be ready: they are out then."""
        size = self.index.size_bytes(start, end)
        self.ready -= end - start
        self.ready_bytes -= size
        if end <= self._cursor:
            self._requeued.cut(start, end)
            return
        assert start >= self._cursor, "ranges come from ready_ranges"
        if start > self._cursor:
            self._requeued.put(self._cursor, start)
        self._cursor = end

    def requeue(self, spans: Iterable[Span], *, counted: bool) -> None:
        """Make messages that are out ready again, in their place; if `counted`, note one more return of each."""
        self.change_count += 1
        unsettled = self._unsettled(spans, self._cursor)
        self._make_ready(
            unsettled, sum(self.index.size_bytes(start, end) for start, end in unsettled)
        )
        if counted:
            self._return_counts.increment(unsettled)
            if self._logged:
                for start, end in unsettled:
                    self.journal.note_returned(self.id, start, end)

    def _unsettled(self, spans: Iterable[Span], before: int) -> list[Span]:
        """Return those parts of the spans that are not settled and come before this sequence."""
        unsettled = self.settled.unsettled
        return [one for start, end in spans for one in unsettled(start, min(end, before))]

    def _make_ready(self, spans: list[Span], size_bytes: int) -> None:
        """Make messages ready: all of these are out and below the cursor."""
        self.ready += sum(end - start for start, end in spans)
        self.ready_bytes += size_bytes
        self._requeued.increment(spans)
        joined = self._requeued.cut_ending_at(self._cursor)
        if joined is not None:
            self._cursor = joined

    def returns_between(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, end, returns): [start, end) split where the number of returns changes."""
        return self._return_counts.pieces(start, end)

    def settle(self, start: int, end: int, *, recorded: bool = False) -> int:
        """Settle the unsettled messages in [start, end); return how many. `recorded`: the log says so already."""
        self.change_count += 1
        if start >= end:
            return 0
        settled = self.settled
        if end > self.next:  # Recovery: the message is lost, but its sequence is not given again.
            self.next = end
        if start >= settled.end:  # Settled in order, which is the case nearly always.
            self._settle_all(start, end, recorded)
            count = end - start
        else:
            count = 0
            for low, high in list(settled.unsettled(start, end)):
                self._settle_all(low, high, recorded)
                count += high - low
        low = settled.low
        if self.index.start < low:
            self.index.drop_before(low)
            if low >= self._next_tidy:
                self._next_tidy = low + _TIDY_EVERY
                self._arrival_times.drop_before(low)
                self._expiries.drop_before(low)
        return count

    def _settle_all(self, start: int, end: int, recorded: bool) -> None:
        """Settle [start, end), none of which is settled yet."""
        index = self.index
        stored_end = min(end, index.end)
        if start < stored_end:
            if stored_end > self._cursor or self._requeued.numbers:
                self._take_from_ready(start, stored_end)
            run = index.find(start)
            assert run is not None, f"message {start} is there to be settled"
            first, count, position, size = run
            if start == first and stored_end == first + count:
                self.size_bytes -= size
                self.settled.add(start, end)
                self.journal.released.append(Records(range(position, position + 1), count, size))
            else:
                self.size_bytes -= index.size_bytes(start, stored_end)
                self.settled.add(start, end)
                self._release(run, start, stored_end)
        else:
            self.settled.add(start, end)
        if self._return_counts.numbers:
            self._return_counts.cut(start, end)
        if self._logged and not recorded:
            self.journal.note_settled(self.id, start, end)

    def _take_from_ready(self, start: int, end: int) -> None:
        """Take whatever is ready in [start, end), as it is about to be settled."""
        if self._requeued:
            for low, high, _ in self._requeued.cut(start, min(end, self._cursor)):
                self.ready -= high - low
                self.ready_bytes -= self.index.size_bytes(low, high)
        if end > self._cursor:
            self.take_range(max(start, self._cursor), end)

    def _release(self, run: Run, start: int, end: int) -> None:
        """[start, end), which begins in `run`, has just been settled: journal the runs now settled as a whole."""
        settled, index = self.settled, self.index
        if run.first < start and not settled.covers(run.first, start):
            start = run.first + run.count
        else:
            start = run.first
        if end > run.first + run.count:
            ending = index.find(end - 1)
            assert ending is not None, f"message {end - 1} was there to be settled"
            run = ending
        last = run.first + run.count
        end = last if settled.covers(end, last) else run.first
        if start < end:
            self.journal.released += index.records(start, end)

    def referenced(self) -> Iterator[Records | Block]:
        """Yield the log positions of runs that have unsettled messages."""
        for low, high in self._unsettled_runs():
            yield from self.index.records(low, high)

    def _unsettled_runs(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of whole runs with unsettled messages; each run once."""
        done = 0
        for low, high in self.settled.unsettled(self.settled.low, self.index.end):
            first, last = self.index.find(low), self.index.find(high - 1)
            assert first is not None, f"unsettled message {low} is there"
            assert last is not None, f"unsettled message {high - 1} is there"
            start, end = max(done, first.first), last.first + last.count
            if start < end:
                yield start, end
            done = end

    def add_returns(self, spans: Iterable[Span]) -> None:
        """Recovery: count one more return for each span, as the log says; a span may occur twice."""
        self.change_count += 1
        self._return_counts.increment(self._unsettled(spans, UNLIMITED))

    def returns(self, ranges_max: int | None) -> tuple[list[Range], int]:
        """Return how often messages came back, in at most `ranges_max` ranges, and up to where they are complete."""
        if not self._return_counts.numbers:
            return [], UNLIMITED
        ranges = list(islice(self._return_counts, ranges_max))
        complete = len(ranges) == len(self._return_counts)
        return ranges, UNLIMITED if complete else ranges[-1][1]

    def load_returns(self, ranges: Iterable[Range], end: int) -> None:
        """Recovery: replace the returns of all messages before `end` by these."""
        self.change_count += 1
        self._return_counts.cut(0, end)
        for start, stop, times in ranges:
            for low, high in self.settled.unsettled(start, stop):
                self._return_counts.put(low, high, times)

    def expire(self, now_us: int, ttl_us: int | None) -> Iterator[tuple[int, int]]:
        """Take the messages at the head that have expired, as RabbitMQ does; yield their ranges."""
        while self.ready:
            start, end = (
                self._requeued.first() if self._requeued else (self._cursor, self.index.end)
            )
            expired = start
            if ttl_us is not None:
                expired = self._arrival_times.first_younger(now_us - ttl_us, start, end)
            if expired == start:
                expires_us, expired = self._expiries.lookup(start, end)
                if not 0 < expires_us - self._arrival_times.clock_ahead_us(start) <= now_us:
                    return
                expired = self._arrival_times.same_clock_end(start, expired)
            self.take_range(start, expired)
            yield start, expired

    def ignore_expiries(self) -> None:
        """Ignore the expiries that messages have of their own."""
        self._expiries = Expiries()

    @property
    def may_expire(self) -> bool:
        """Whether any message has, or had, an expiry of its own."""
        return bool(self._expiries)

    def oldest_us(self) -> int | None:
        """When the oldest unsettled message came, as exactly as is known; None if there is none."""
        low = self.settled.low
        return self._arrival_times.earliest_us(low) if low < self.index.end else None

    def first_younger(self, time_us: int) -> int:
        """Return the first sequence whose message may have come after `time_us`; the end if none has. Messages that
        came before the start count as no later than it, so a clock that was ahead does not keep them for longer."""
        return self._arrival_times.first_younger(time_us, self.settled.low, self.index.end)

    def first_later(self, time_us: int) -> tuple[int, int]:
        """Return the first sequence whose message may have come after `time_us`, by the clock of that moment, and one
        from which on all have."""
        end = self.index.end
        first = self._arrival_times.first_after(time_us, self.settled.low, end)
        return first, self._arrival_times.next_mark(first, end)

    def encode(self) -> tuple[Pieces, bytes]:
        """Return two parts for a checkpoint, for `load`: what was enqueued, in pieces, and what became of it."""
        if self.settled.end > self.settled.low:  # Some are settled behind a message that is not.
            self.index.drop_blocks(self.settled.covers)
        enqueued = encode_enqueued(self.index, self._expiries, self._arrival_times)
        return enqueued, encode_outcomes(self.settled, self._return_counts)

    def load(self, enqueued: bytes, settled: bytes) -> None:
        """Fill an empty lane from `encode`; all messages that are not settled are ready then.

        Raises:
            ValueError: bytes that no `encode` has written; the lane is unchanged.
        """
        parts, outcomes = decode_enqueued(enqueued), decode_outcomes(settled)
        self.index, self._expiries, self._arrival_times = parts
        self.settled, self._return_counts = outcomes
        for start, end in list(self.index.gaps(self.settled.low, self.index.end)):
            self.settled.add(start, end)
        self.index.drop_before(self.settled.low)
        end = self.index.end
        self.next = max(self.next, end, self.settled.end)
        self._cursor = min(self.settled.end, end)
        for start, edge in self.settled.unsettled(self.settled.low, self._cursor):
            self._requeued.put(start, edge)
        for start, edge in self.ready_ranges():
            self.ready += edge - start
            self.ready_bytes += self.index.size_bytes(start, edge)
        self.size_bytes = self.ready_bytes

    def load_settled(self, settled: bytes) -> None:
        """Set, in an empty lane, what became of messages that recovery may still read from the log.

        Raises:
            ValueError: bytes that no `encode` has written; the lane is unchanged.
        """
        self.settled, self._return_counts = decode_outcomes(settled)
        self.next = max(self.next, self.settled.end)
        self.change_count += 1
