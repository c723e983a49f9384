"""What is to be written and what is durable: the log's state, without any I/O.

    append ──> gathered ──begin──> commit under way ──done──> durable
                  ^                    │
                  │                    ├── refused: no space; the same commit again later
               goes on meanwhile       └── failed:  the store has stopped for good

One commit is under way at a time; it takes everything gathered so far, up to a limit. The caller carries out all
its steps in order, then calls `done`. A failed sync is never repeated, because after it a success that the kernel
reports proves nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from ..errors import StoreBusy, StoreClosed, StoreFailed, StoreFull
from .bodies import MESSAGES
from .cipher import Cipher
from .config import LogConfig
from .header import SEGMENT_HEADER_BYTES, SegmentHeader, encode_segment_header
from .placing import AheadState, Place, Placer, WritePoint
from .purpose import is_essential
from .record import SEAL_KIND, Buffer, Draft, encode_record, store_seed
from .segments import Segment, Segments
from .spares import Spare

WAITING_BYTES = 1500
"""Memory that a waiting record takes besides its own bytes, with all that a broker notes of it."""

COMMIT_RECORDS_MAX = 4096
"""Most records in one commit: they are encoded in one turn, which takes 20 ms if they are small."""


@dataclass(slots=True)
class Write:
    """Write `pieces`, one after the other, from byte `at` of segment `number` on."""

    number: int
    at: int
    pieces: list[Buffer]


@dataclass(frozen=True, slots=True)
class ConvertSpare:
    """Make spare `spare` segment `number`: filled with zeros, and under its new name on stable storage."""

    number: int
    spare: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Put all that was written to segment `number` on stable storage."""

    number: int


@dataclass(slots=True)
class Commit:
    """Steps to be carried out in this order; then all log positions before `end` are durable."""

    steps: list[Write | ConvertSpare | Sync] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    size_bytes: int = 0
    end: int = 0
    begun_s: float = 0.0
    """When it was last handed to the disk. inf: it waits for space, so the disk has nothing to do."""
    hangs: bool = False
    """Whether it is known to take too long. A late loop may not have heard of its end yet, so the time alone is no
    proof."""


class Committer:
    """The state of one log. Reads no clock, touches no disk."""

    def __init__(
        self, config: LogConfig, segments: Segments, point: WritePoint, *, store_id: bytes,
        epoch: int, chain: int, ahead_ready: bool, spares: Iterable[Spare] = (),
        cipher: Cipher | None = None,
    ) -> None:  # fmt: skip
        self.config, self.segments, self.epoch = config, segments, epoch
        self.placer = Placer(config, point, segments, ahead_ready=ahead_ready, spares=spares)
        self._store_id, self._seed = store_id, store_seed(store_id)
        self._encrypt = cipher.encrypt if cipher is not None and cipher.encrypting else None
        self._chain = chain
        self._new_segments: dict[int, Segment] = {}
        """Segments of which nothing is durable yet, by number."""
        self._gathered: deque[Place] = deque()
        self.pending_bytes = 0
        """Bytes appended and not durable yet."""
        self.durable_end = point.position
        """All log positions before this one are on stable storage."""
        self.commit: Commit | None = None
        """The commit under way."""
        self.failure: str | None = None
        """Why no appends are taken any more; None if they are."""
        self.stopped = False
        """Whether nothing is taken any more: it was closed, or has failed."""
        self._refused: StoreFull | None = None
        self.commits = self.committed_bytes = 0

    @property
    def end(self) -> int:
        """The log position of the next record."""
        return self.placer.write_point.position

    @property
    def gathered(self) -> bool:
        """Whether there is anything for the commit after the current one."""
        return bool(self._gathered)

    def append(self, drafts: Sequence[Draft]) -> range:
        """Take records to be written, and return their log positions. All are taken or none.

        Raises:
            TooLarge: they would not fit an empty segment.
            StoreBusy: too much is waiting already, or the next segment is being made.
            StoreFull: the disk is full. Acks and definitions are still taken, see Placer.
            StoreFailed, StoreClosed: nothing is taken any more.
        """
        self.check()
        size = sum([draft.size_bytes for draft in drafts])
        if self._refused is not None and not all(map(is_essential, drafts)):
            raise self.config.full_error(size, self._refused.free_bytes)
        if self._exceeds_limit(size):
            raise StoreBusy(size, f"{self.end - self.durable_end} records wait to be written")
        if self._encrypt is not None:  # Before they get places, because it makes them longer.
            drafts = [self._encrypt(draft) for draft in drafts]
        start = self.end
        leave = bool(drafts) and drafts[0].snapshot and self.segment_spent
        places = self.placer.place(drafts, leave=leave)
        self._gathered += places
        self.pending_bytes += sum([place.size_bytes for place in places])
        return range(start, self.end)

    @property
    def segment_spent(self) -> bool:
        """Whether the segment being written would be free if it were not being written: nothing needs its records, and
        little more fits. On a full disk a snapshot then goes into a spare, so that the next one frees this segment.
        Records that are on their way to it, or being carried forward, will be needed."""
        last = self.segments.last
        return (
            self.placer.can_leave
            and not self.placer.backlog.moved_bytes
            and last is not None
            and last.number == self.placer.write_point.number
            and not last.references
            and not self._messages_pending
        )

    @property
    def _messages_pending(self) -> bool:
        """Whether messages are not durable yet."""
        under_way = () if self.commit is None else self.commit.places
        return any(place.draft.kind in MESSAGES for place in chain(under_way, self._gathered))

    def _exceeds_limit(self, size_bytes: int) -> bool:
        """Return whether `size_bytes` more would exceed the memory for waiting records. An append larger than a commit
        needs only the room of a commit: otherwise it would never be taken while small appends keep coming."""
        waiting = self.pending_bytes + WAITING_BYTES * (self.end - self.durable_end)
        more = min(size_bytes, self.config.commit_bytes_max)
        return self.pending_bytes > 0 and waiting + more > self.config.pending_bytes_max

    def is_busy(self, size_bytes: int) -> bool:
        """Return whether an append of `size_bytes` would be refused with StoreBusy because of what waits already."""
        return not self.stopped and self._refused is None and self._exceeds_limit(size_bytes)

    def begin(self, now_s: float) -> Commit | None:
        """Return what to write now; None if a commit is under way, or nothing has gathered."""
        if self.commit is not None or self.stopped or not self._gathered:
            return None
        gathered, limit = self._gathered, self.config.commit_bytes_max
        commit = self.commit = Commit(begun_s=now_s)
        while gathered and len(commit.places) < COMMIT_RECORDS_MAX:
            if commit.places and commit.size_bytes + gathered[0].size_bytes > limit:
                break
            self._include(commit, gathered.popleft())
        commit.steps.append(Sync(commit.places[-1].number))
        return commit

    def _include(self, commit: Commit, place: Place) -> None:
        draft, position, number, _, size = place
        step = commit.steps[-1] if commit.steps else None
        if not isinstance(step, Write) or step.number != number:
            if step is not None:  # The old segment is stable before the new one begins.
                assert isinstance(step, Write)
                commit.steps.append(Sync(step.number))
            spare = self.placer.spares.take_assigned(number)
            if spare is not None:
                commit.steps.append(ConvertSpare(number, spare.number))
            step = self._first_write(place, spare)
            commit.steps.append(step)
        pieces, self._chain = encode_record(
            draft, seed=self._seed, epoch=self.epoch, position=position, chain=self._chain,
            unsynced=position - self.durable_end,
        )  # fmt: skip
        step.pieces += pieces
        commit.places.append(place)
        commit.size_bytes += size
        commit.end = position + (draft.kind != SEAL_KIND)

    def _first_write(self, place: Place, spare: Spare | None) -> Write:
        if place.at > SEGMENT_HEADER_BYTES:
            return Write(place.number, place.at, [])
        size_bytes = self.config.segment_bytes if spare is None else spare.size_bytes
        last = self.segments.last
        if last is not None and last.number == place.number:  # Found with a header and no record.
            size_bytes = last.capacity_bytes
        else:
            self._new_segments[place.number] = Segment(place.number, place.position, size_bytes)
        header = SegmentHeader(
            self._store_id,
            place.number,
            place.position,
            self._chain,
            size_bytes,
            place.draft.time_us,
        )
        return Write(place.number, 0, [encode_segment_header(header)])

    def done(self) -> None:
        """Note that the commit under way has been carried out: its records are durable."""
        commit = self.commit
        assert commit is not None, "a commit is under way"
        for place in commit.places:
            self._note(place)
        self.durable_end = commit.end
        self.pending_bytes -= commit.size_bytes
        self.commits += 1
        self.committed_bytes += commit.size_bytes
        self.commit = self._refused = None

    def _note(self, place: Place) -> None:
        segment = self.segments.last
        if segment is None or segment.number != place.number:
            if segment is not None:
                segment.sealed = True
            segment = self._new_segments.pop(place.number)
            self.segments.add(segment)
        end_at = place.at + place.size_bytes
        if place.draft.kind == SEAL_KIND:
            segment.seal(end_at)
        else:
            segment.note(place.position, place.at, end_at)

    def refused(self, free_bytes: int) -> None:
        """Note that there was no space for the commit under way; it has to be carried out again later."""
        assert self.commit is not None, "a commit is under way"
        self.commit.begun_s = inf
        self._refused = self.config.full_error(self.commit.size_bytes, free_bytes)

    def begin_again(self, now_s: float) -> Commit:
        """Return the commit that waited for space, to be carried out again."""
        assert self.commit is not None, "a commit is under way"
        self.commit.begun_s, self.commit.hangs = now_s, False
        return self.commit

    def failed(self, reason: str) -> None:
        """Note that the disk failed. It stays unknown what of the records under way or gathered is durable."""
        self.failure, self.stopped = self.failure or reason, True

    def close(self) -> None:
        """Take nothing any more. What has gathered will not be written."""
        self.stopped = True

    def check(self) -> None:
        """Raises StoreFailed or StoreClosed if nothing is taken any more."""
        if self.failure is not None:
            raise StoreFailed(self.failure)
        if self.stopped:
            raise StoreClosed(
                "the store has been closed; whether records that were not durable then are stored is unknown"
            )

    @property
    def waits_for_space(self) -> bool:
        """Whether the commit under way waits for space."""
        return self._refused is not None

    @property
    def full(self) -> bool:
        """Whether publishes are being refused for lack of space, or soon will be."""
        return self.waits_for_space or self.placer.ahead is AheadState.REFUSED

    @property
    def segment_pending(self) -> bool:
        """Whether it is not known yet if there is space for the segment ahead."""
        return not self.stopped and self.placer.ahead is AheadState.WANTED

    def overdue_s(self, now_s: float) -> float:
        """Return by how much the commit under way exceeds its time limit; 0 if it does not, or waits for space."""
        if self.commit is None or not self.commit.hangs:
            return 0.0
        return max(0.0, now_s - self.commit.begun_s - self.config.commit_s_max)
