"""What consumers, limits and time have settled: as few records as take it, and what they free.

Settlements gather in the journal until `flush`, and travel with whatever is committed next: few wait
for them, and who does says so. Only when its last record is durable may the segments they free go: a
dead letter's original, for one, must not vanish before its copy is safe.
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
"""Of settlements in one record; where segments or reserves are small, a quarter of what one takes."""


class Settling:
    """Of one vhost. Flushes are numbered from 1, so that whoever settled can tell when it is safe."""

    def __init__(
        self, journal: Journal, held: Journal, owners: Mapping[int, Member], bodies: Bodies,
        store: Store,
    ) -> None:  # fmt: skip
        """
        Args:
            journal, held: of lanes in the log; of those in memory.
            owners: by lane.
        """
        self._owners = owners
        self._journal, self._held, self._bodies, self._store = journal, held, bodies, store
        self._releases: deque[tuple[int, list[Records | Block]]] = deque()
        self._unappended: deque[Draft] = deque()
        """Taken from the journal. The log had no room for them, or for what was before them."""
        self._flushed: deque[tuple[int, int]] = deque()
        """(number of a flush, log position to be durable for it)"""
        self.last_position = store.end - 1
        """The log has all settlements and returns so far up to here."""
        self.appended_bytes = 0
        """Of settlements, since the start."""
        self.refusal: StoreError | None = None
        """Why the last flush could not append what has gathered, if it could not."""
        self._tally: Tally | None = None
        """Of the first `_counted` runs of the journal that are to be released, once there is no room."""
        self._counted = 0
        self._flushes, self._wanted, self._hurried = 0, False, False
        self.durable = 0
        """Everything settled up to this flush is on disk."""

    def next_flush(self) -> int:
        """The number of the flush that takes what has been settled until now."""
        self._wanted = True
        return self._flushes + 1

    def hurry(self) -> None:
        """Somebody waits until what has been settled until now is durable."""
        self._hurried = True

    def flush(self, now_us: int) -> None:
        """Append what has gathered, unless the log has no room: then after its next commit."""
        self.refusal = None
        if self._held:
            self._release_held()
        if self._wanted or self._journal or self._unappended:
            try:
                self._append()
                self._take(now_us)
                self._append()
            except StoreError as error:
                # Full, or stopped: who publishes is told, and this goes on gathering.
                self.refusal = error
                if isinstance(error, StoreFull):
                    self._count_refused()
                return
            self._note_flush()
        if self._hurried:
            self._hurried = False
            self._store.hurry()

    def refused_would(self, free: Callable[[Tally], bool]) -> bool:
        """Whether it would `free` a segment, had the log had room for what it had none for."""
        if not isinstance(self.refusal, StoreFull):
            return False
        assert self._tally is not None, "counted where it was refused"
        return free(self._tally)

    def _count_refused(self) -> None:
        """What has gathered since the last flush: each is counted once, however long there is no room."""
        if self._tally is None:
            self._tally, self._counted = self._store.tally(), 0
        waiting = self._journal.released
        for one in waiting[self._counted :]:
            count_all(self._store, one, self._tally)
        self._counted = len(waiting)

    def covered(self, position: int) -> None:
        """A snapshot up to this log position says all that was settled, and came back, so far: what the log
        had no room for is not needed any more."""
        self._unappended.clear()
        self._journal.take_settled()
        self.last_position, self.refusal = position, None
        self._note_flush()

    def _note_flush(self) -> None:
        self._flushes += 1
        self._wanted, self._tally = False, None
        self._flushed.append((self._flushes, self.last_position))
        released = self._journal.take_released()
        if released:
            # Also behind the deletion of a queue, which stands in a record of its own.
            self._releases.append((self._store.end - 1, released))
        self.committed(self._store.durable_end)

    @property
    def record_bytes_max(self) -> int:
        """Of settlements in one record."""
        return min(
            RECORD_BYTES_MAX, self._store.append_bytes_max // 4, self._store.reserve_bytes // 4
        )

    def _take(self, now_us: int) -> None:
        """Records of everything settled since the last ones."""
        both = self._journal.take_settled()
        written = 0
        for body in encode_acks_in_parts(*both, self.record_bytes_max):
            draft = Draft(Kind.ACKS, body, (), now_us)
            self._unappended.append(draft)
            written += draft.size_bytes
        sizes = [(lane, acks_bytes(len(spans))) for acks in both for lane, spans in acks.items()]
        if sizes:  # What these do not account for, such as headers, is shared alike.
            shared = (written - sum(size for _, size in sizes)) // len(sizes)
            for lane, size in sizes:
                self.note_written(lane, size + shared)

    def note_written(self, lane: int, size_bytes: int) -> None:
        """A settlement of messages of this lane takes so much in the log."""
        owner = self._owners.get(lane)
        if owner is not None:  # Else it is deleted.
            owner.counts.written_bytes += size_bytes

    def _append(self) -> None:
        """One by one: together they may be more than a segment takes. Raises StoreError."""
        while self._unappended:
            (self.last_position,) = self._store.append_nowait([self._unappended[0]], hurry=False)
            self.appended_bytes += self._unappended.popleft().size_bytes

    def _release_held(self) -> None:
        for one in self._held.take_released():
            for records in (one,) if isinstance(one, Records) else one.each():
                for position in records.positions:
                    self._bodies.release(position)

    def committed(self, end: int) -> None:
        """All log positions before `end` are durable."""
        while self._flushed and self._flushed[0][1] < end:
            self.durable = self._flushed.popleft()[0]
        while self._releases and self._releases[0][0] < end:
            for one in self._releases.popleft()[1]:
                release_all(self._store, one)
