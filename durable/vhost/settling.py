"""Settlements by consumers, limits and time: logged in as few records as possible, and what they free.

Settlements gather in the journal until `flush`, and are committed along with whatever is committed next:
few tasks wait for them, and those call `hurry`. The segments that they free are released only when the
last of these records is durable: the original of a dead letter, for one, must not vanish before its copy
is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ..errors import StoreError, StoreFull
from ..log.bodies import acks_bytes, encode_acks_in_parts
from ..log.record import Draft, Kind
from ..log.segments import Tally
from ..queues.block import Block
from ..queues.journal import Journal
from ..queues.runs import Records
from .bodies import Bodies
from .member import Member
from .store import Store, count_all, release_all

RECORD_BYTES_MAX = 1 << 20
"""Bytes of settlements in one record; where segments or reserves are small, a quarter of what one takes."""


class Settling:
    """The settlements of one vhost. Flushes are numbered from 1, so a task can tell when its own are durable."""

    def __init__(
        self, journal: Journal, held_journal: Journal, owners: Mapping[int, Member], bodies: Bodies,
        store: Store,
    ) -> None:  # fmt: skip
        """
        Args:
            journal, held_journal: of the lanes in the log, and of those in memory.
            owners: queues and streams by lane.
        """
        self._owners = owners
        self._journal, self._held_journal, self._bodies, self._store = (
            journal,
            held_journal,
            bodies,
            store,
        )
        self._releases: deque[tuple[int, list[Records | Block]]] = deque()
        self._unappended: deque[Draft] = deque()
        """Drafts taken from the journal for which, or for one before them, the log had no room."""
        self._flushed: deque[tuple[int, int]] = deque()
        """(number of a flush, log position that has to be durable for it)."""
        self.last_position = store.end - 1
        """All settlements and returns so far are in records up to this log position."""
        self.appended_bytes = 0
        """Bytes of settlements appended since the start."""
        self.refusal: StoreError | None = None
        """Why the last flush could not append everything; None if it could."""
        self._tally: Tally | None = None
        """Tally of the first `_counted` released runs in the journal; kept only while the disk is full."""
        self._counted = 0
        self._flushes, self._flush_wanted, self._hurried = 0, False, False
        self.durable_flush = 0
        """Everything settled up to the flush of this number is on disk."""

    def next_flush(self) -> int:
        """Return the number of the flush that will append everything settled until now."""
        self._flush_wanted = True
        return self._flushes + 1

    def hurry(self) -> None:
        """A task waits until everything settled until now is durable."""
        self._hurried = True

    def flush(self, now_us: int) -> None:
        """Append everything that has gathered. If the log has no room, keep it for the flush after the next
        commit."""
        self.refusal = None
        self.release_held()
        if self._flush_wanted or self._journal or self._unappended:
            try:
                self._append()
                self._make_drafts(now_us)
                self._append()
            except StoreError as error:
                # Publishers are told of a full or failed log; here settlements go on gathering.
                self.refusal = error
                if isinstance(error, StoreFull):
                    self._count_refused()
                return
            self._note_flush()
        if self._hurried:
            self._hurried = False
            self._store.hurry()

    def would_free_segment(self, free: Callable[[Tally], bool]) -> bool:
        """Whether the settlements that found the disk full would free a segment, as `free` tells from their
        tally."""
        if not isinstance(self.refusal, StoreFull):
            return False
        assert self._tally is not None, "counted where it was refused"
        return free(self._tally)

    def _count_refused(self) -> None:
        """Count what has been released since the last flush that succeeded; each run once, however long the
        disk is full."""
        if self._tally is None:
            self._tally, self._counted = self._store.tally(), 0
        waiting = self._journal.released
        for one in waiting[self._counted :]:
            count_all(self._store, one, self._tally)
        self._counted = len(waiting)

    def note_covered(self, position: int) -> None:
        """A snapshot up to this log position holds all settlements and returns so far, so those that the log
        had no room for need no records any more."""
        self._unappended.clear()
        self._journal.take_settled()
        self.last_position, self.refusal = position, None
        self._note_flush()

    def _note_flush(self) -> None:
        self._flushes += 1
        self._flush_wanted, self._tally = False, None
        self._flushed.append((self._flushes, self.last_position))
        released = self._journal.take_released()
        if released:
            # Not `last_position`: among the released runs are those of deleted queues, and a deletion is a
            # record of its own, which may be behind the last settlement.
            self._releases.append((self._store.end - 1, released))
        self.committed(self._store.durable_end)

    @property
    def record_bytes_max(self) -> int:
        """Bytes of settlements in one record."""
        return min(
            RECORD_BYTES_MAX, self._store.append_bytes_max // 4, self._store.reserve_bytes // 4
        )

    def _make_drafts(self, now_us: int) -> None:
        """Make drafts of everything settled since the last call."""
        both = self._journal.take_settled()
        written = 0
        for body in encode_acks_in_parts(*both, self.record_bytes_max):
            draft = Draft(Kind.ACKS, body, (), now_us)
            self._unappended.append(draft)
            written += draft.size_bytes
        sizes = [(lane, acks_bytes(len(spans))) for acks in both for lane, spans in acks.items()]
        # Each lane gets an equal share of the bytes that belong to none, such as headers.
        if sizes:
            shared = (written - sum(size for _, size in sizes)) // len(sizes)
            for lane, size in sizes:
                self.note_written(lane, size + shared)

    def note_written(self, lane: int, size_bytes: int) -> None:
        """Count `size_bytes` in the log for a settlement of this lane's messages."""
        owner = self._owners.get(lane)
        if owner is not None:  # Otherwise it has been deleted.
            owner.counts.written_bytes += size_bytes

    def _append(self) -> None:
        """Append drafts one by one: together they may be more than a segment can take. Raises StoreError."""
        while self._unappended:
            (self.last_position,) = self._store.append_nowait([self._unappended[0]], hurry=False)
            self.appended_bytes += self._unappended.popleft().size_bytes

    def release_held(self) -> None:
        """Drop the bodies that no memory queue needs any more, so that their memory is free at once."""
        for one in self._held_journal.take_released():
            for records in (one,) if isinstance(one, Records) else one.records():
                for position in records.positions:
                    self._bodies.release(position)

    def committed(self, end: int) -> None:
        """All log positions before `end` are durable: release what that frees."""
        while self._flushed and self._flushed[0][1] < end:
            self.durable_flush = self._flushed.popleft()[0]
        while self._releases and self._releases[0][0] < end:
            for one in self._releases.popleft()[1]:
                release_all(self._store, one)
