"""Where appended records will stand: which segment, which byte, and whether there is room at all.

    | header | records ...        | reserve                | of the next snapshot | seal |
                                  ^ publishes              ^ acks and definitions ^ a snapshot
                                    end here                 may go on to here      to here

Only space that has been allocated on the disk is given away. The next segment is made ahead, as soon
as one is begun; while it cannot be made, publishes are refused at the end of the ordinary part, and
acks go on into the reserve. Nothing gives space back without a snapshot, so behind the reserve there is
room for one as large as the last one and all that has been declared since, up to a quarter of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from mesh.errors import TooLarge

from ..errors import StoreBusy, StoreFull
from .bodies import SEAL_BYTES, seal_draft
from .config import LogConfig
from .header import SEGMENT_HEADER_BYTES
from .record import Draft, Kind

ESSENTIAL = frozenset({Kind.ACKS, Kind.DEFINITIONS})
SEGMENT_PER_SNAPSHOT = 4
"""What is kept for a snapshot leaves most of a segment to publishes, and room for a copy of it."""


def essential(draft: Draft) -> bool:
    """Whether it may use the reserve: it is of a kind that gives space back."""
    return draft.kind in ESSENTIAL and not draft.patient


class Ahead(Enum):
    """The segment after the one being written."""

    WANTED = auto()
    MAKING = auto()
    READY = auto()
    REFUSED = auto()
    """There is no space for it at the moment."""


class Place(NamedTuple):
    draft: Draft
    position: int
    number: int
    at: int
    size_bytes: int


class Cursor(NamedTuple):
    """Where the next record goes, if it fits. A log without segments is at the end of number 0."""

    number: int
    first: int
    """Log position of the segment's first record."""
    at: int
    capacity_bytes: int
    position: int
    sealed: bool = False


class Placer:
    """Gives out places in the order it is asked."""

    def __init__(self, config: LogConfig, cursor: Cursor, *, ahead_ready: bool) -> None:
        self._config, self.cursor = config, cursor
        self.ahead = Ahead.READY if ahead_ready else Ahead.WANTED
        self.free_bytes = 0
        """On the file system, when the next segment was refused."""
        self._snapshot_bytes = 0
        """Kept for the next snapshot. 0: nobody takes any of this log."""

    @property
    def append_bytes_max(self) -> int:
        """What an empty segment takes beside all that is kept."""
        return self._snapshot_bytes_max - self._snapshot_bytes

    @property
    def _snapshot_bytes_max(self) -> int:
        config = self._config
        return config.segment_bytes - SEGMENT_HEADER_BYTES - config.reserve_bytes - SEAL_BYTES

    def keep_for_snapshot(self, size_bytes: int) -> None:
        """So much the next one takes, as far as is known; what is declared from now on is added."""
        self._snapshot_bytes = min(size_bytes, self._config.segment_bytes // SEGMENT_PER_SNAPSHOT)

    @property
    def snapshot_spent(self) -> bool:
        """Whether what was kept in the segment being written has gone to one. Right after opening: then
        a segment may have been freed for which no other one has been made."""
        cursor = self.cursor
        left = cursor.capacity_bytes - SEAL_BYTES - cursor.at
        return not cursor.sealed and left < self._snapshot_bytes

    def place(self, drafts: Sequence[Draft]) -> list[Place]:
        """A place for each, and for a seal where a segment ends between them: all or none.

        Raises:
            TooLarge: they would not fit an empty segment beside what is kept. A snapshot may take its own.
            StoreBusy: the next segment is being made.
            StoreFull: it cannot be made.
        """
        total = sum(draft.size_bytes for draft in drafts)
        if total > self.append_bytes_max:
            self._check_snapshot(drafts, total)
        places: list[Place] = []
        cursor, ahead = self.cursor, self.ahead
        for draft in drafts:
            size = draft.size_bytes
            if not self._fits(cursor, draft, size, ahead):
                if ahead is not Ahead.READY:
                    raise self._refusal(total, ahead)
                cursor = self._roll(cursor, draft, places)
                ahead = Ahead.WANTED
            places.append(Place(draft, cursor.position, cursor.number, cursor.at, size))
            cursor = cursor._replace(at=cursor.at + size, position=cursor.position + 1)
        self.cursor, self.ahead = cursor, ahead
        if self._snapshot_bytes:
            self._declared(drafts)
        return places

    def _check_snapshot(self, drafts: Sequence[Draft], total: int) -> None:
        """Whether this is one, to which what is kept for it is open. Raises TooLarge."""
        alone = all(draft.snapshot and not draft.patient for draft in drafts)
        limit = self._snapshot_bytes_max if alone else self.append_bytes_max
        if total > limit:
            raise TooLarge("what is appended at once", total, limit)

    def _fits(self, cursor: Cursor, draft: Draft, size: int, ahead: Ahead) -> bool:
        limit = cursor.capacity_bytes - SEAL_BYTES
        if not essential(draft) or ahead is Ahead.READY or (draft.snapshot and self._undecided):
            limit -= self._config.reserve_bytes + self._snapshot_bytes
        elif not draft.snapshot:
            limit -= self._snapshot_bytes
        return not cursor.sealed and cursor.at + size <= limit

    @property
    def _undecided(self) -> bool:
        """Whether there may be a segment ahead in a moment: a snapshot can wait for it."""
        return self.ahead in (Ahead.WANTED, Ahead.MAKING)

    def _declared(self, drafts: Sequence[Draft]) -> None:
        """The next snapshot says it, too, or is as large as this one."""
        found = [one for one in drafts if one.kind == Kind.DEFINITIONS and not one.patient]
        if found:
            before = 0 if found[0].snapshot else self._snapshot_bytes
            self.keep_for_snapshot(before + sum(one.size_bytes for one in found))

    def _roll(self, cursor: Cursor, draft: Draft, places: list[Place]) -> Cursor:
        """On to the next segment, behind a seal unless there is one, or no place for it."""
        if not cursor.sealed and cursor.at + SEAL_BYTES <= cursor.capacity_bytes:
            seal = seal_draft(cursor.first, cursor.position - cursor.first, draft.time_us)
            places.append(Place(seal, cursor.position, cursor.number, cursor.at, SEAL_BYTES))
        return Cursor(
            cursor.number + 1, cursor.position, SEGMENT_HEADER_BYTES, self._config.segment_bytes,
            cursor.position,
        )  # fmt: skip

    def _refusal(self, needed: int, ahead: Ahead) -> Exception:
        if ahead is Ahead.REFUSED:
            return StoreFull(needed, self._config.segment_bytes, self.free_bytes)
        return StoreBusy(needed, "the next segment is being made")
