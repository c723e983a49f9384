"""Gives appended records their places: segment and byte; and knows whether there is room at all.

    | header | records ...  | dead letters, moved   | reserve                | for the next snapshot | seal |
                            ^ publishes end here    ^ if there is one,       ^ acks and definitions  ^ snapshots
                              without a segment       publishes end here       end here                end here
                              ahead

Only space that is allocated on the disk is given out. The next segment is made ahead, as soon as one is begun. While
it cannot be made, publishes are refused before the end of the ordinary part; the rest of that part is for dead
letters and moved records, which give space back. Acks go on into the reserve. Nothing is freed without a snapshot, so
behind the reserve there is room for one as large as the last one and all that was declared since, up to a quarter of
a segment.

When the reserve is used up as well, acks, definitions and snapshots go on in spares: two small files, made while
there was room. Each becomes a segment of its own that holds nothing else:

    ... | publishes | reserve, used up |   | spare: acks ... | of the next snapshot |   | spare |

While the second one is written, a snapshot in it covers all that is in the first one, which is then free, and a spare
again. So acks go on without end, whatever else takes space on the disk.

Acks alone free no segment of which some records stay. What compaction carries forward has a place that acks never
use: the carrier, a whole segment made while there was room, from the third segment on. Carried records take at most
nine tenths of it, so compaction frees more than it takes, and there is space for another carrier before publishes get
a segment; until that is made, what publishes left of the current segment is for compaction. The same holds for the
second of two segments, if there is no space for a third. The carrier may also be used by dead letters, if they are
most of what is stored, and by a snapshot that is too large for the spares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from math import inf
from typing import NamedTuple

from mesh.errors import TooLarge

from ..errors import StoreBusy
from .bodies import SEAL_BYTES, seal_draft
from .compaction import FULL_SHARE
from .config import LogConfig
from .header import SEGMENT_HEADER_BYTES
from .purpose import Purpose, is_essential, purpose_of
from .record import Draft, Kind
from .segments import Segment, Segments
from .spares import CARRIER, Spare, Spares, room, was_small_spare

CARRIER_SEGMENTS_MIN = 3
"""With fewer segments, one more to write to is worth more than a carrier."""


class AheadState(Enum):
    """State of the segment after the one being written."""

    WANTED = auto()
    """It will soon be known whether there is space for it."""
    READY = auto()
    REFUSED = auto()
    """There is no space for it at the moment."""


class Place(NamedTuple):
    draft: Draft
    position: int
    number: int
    at: int
    size_bytes: int


@dataclass(slots=True)
class Backlog:
    """What the user of the log still has to append, and may find no room for."""

    many_letters: bool = False
    """So many dead letters wait that settling their originals frees more than they take, and nothing can be carried
    forward."""
    moved_bytes: int = 0
    """Bytes still to be carried forward of the segment that is being compacted."""


class WritePoint(NamedTuple):
    """Where the next record goes, if it fits. A log without segments is at the end of segment 0."""

    number: int
    first: int
    """Log position of the segment's first record."""
    at: int
    capacity_bytes: int
    position: int
    sealed: bool = False


class Placer:
    """Gives out places, in the order of the calls."""

    def __init__(
        self, config: LogConfig, point: WritePoint, segments: Segments, *, ahead_ready: bool,
        spares: Iterable[Spare] = (),
    ) -> None:  # fmt: skip
        self._config, self.write_point, self._segments = config, point, segments
        self.spares = Spares(config, spares)
        self.spares.had_small |= any(
            was_small_spare(config, one.capacity_bytes) for one in segments
        )
        self.ahead = AheadState.READY if ahead_ready else AheadState.WANTED
        self._making_ahead = False
        """The segment ahead is being made at this moment, so its number is taken."""
        self._free_bytes = 0
        """Free space on the file system when the next segment was refused."""
        self.backlog = Backlog()
        self._snapshot_bytes = 0
        """Kept for the next snapshot. 0: nobody takes snapshots of this log."""
        self.append_bytes_max = self._ordinary_bytes(config.segment_bytes)
        """Most that one append may take: what an empty segment has beside all that is kept."""

    def wanted_segment(self) -> int | None:
        """Return the number of a segment to be made now; the caller answers by `segment_made` or `segment_refused`."""
        if self._making_ahead or self.ahead is AheadState.READY:
            return None
        self._making_ahead = True
        return self.write_point.number + 1

    def segment_made(self) -> None:
        self.ahead, self._making_ahead = AheadState.READY, False

    def segment_refused(self, free_bytes: int) -> None:
        """Note that there is no space for the segment ahead; it is to be tried again later."""
        self.ahead, self._free_bytes, self._making_ahead = AheadState.REFUSED, free_bytes, False

    def ahead_became_carrier(self, carrier: Spare) -> None:
        """Note that the segment ahead has become the carrier."""
        self.spares.add(carrier)
        self.ahead = AheadState.WANTED

    def _ordinary_bytes(self, capacity_bytes: int) -> int:
        """Size of the ordinary part of such a segment, which any record may use."""
        return room(capacity_bytes) - self._config.reserve_bytes - self._snapshot_bytes

    @property
    def needs_carrier(self) -> bool:
        """Whether there should be a carrier. With few segments there is little to carry forward, and without small
        spares acks need the next segment more."""
        if not self._carries:
            return False
        others = len(self._others(CARRIER_SEGMENTS_MIN))
        return (not self._in_small_spare) + others >= CARRIER_SEGMENTS_MIN

    @property
    def _carries(self) -> bool:
        """Whether anything is carried forward on a full disk."""
        had_small = self.spares.had_small or self._in_small_spare
        return self._config.compaction_share_max > 0 and had_small

    def _others(self, most: int) -> list[Segment]:
        """Return segments that were no small spares, without the one being written: at most so many, newest first, as
        old ones may be small, and each append asks this while none is ahead."""
        writing = self.write_point.number
        whole = (
            one
            for one in reversed(self._segments)
            if one.number != writing and not was_small_spare(self._config, one.capacity_bytes)
        )
        return [*islice(whole, most)]

    @property
    def _in_small_spare(self) -> bool:
        """Whether the segment being written was a small spare."""
        return was_small_spare(self._config, self.write_point.capacity_bytes)

    @property
    def carrier_missing(self) -> bool:
        """Whether there should be a carrier, and there is none."""
        return self.spares.carrier is None and self.needs_carrier

    @property
    def carrier_useless(self) -> bool:
        """Whether there is a carrier that should rather be the next segment, for which there was no space."""
        return (
            self.ahead is AheadState.REFUSED
            and self.spares.carrier is not None
            and not self.needs_carrier
        )

    def wanted_spares(self) -> list[Spare]:
        """Return spares that should be made, or made larger, now: those for acks first."""
        wanted = self.spares.wanted(self._snapshot_bytes)
        if self.carrier_missing:
            wanted.append(Spare(CARRIER, self._config.segment_bytes))
        return wanted

    @property
    def carried_bytes_max(self) -> float:
        """How much compaction can carry forward now; inf: any amount, into the next segment. In the carrier a snapshot
        may take some room meanwhile."""
        if self.ahead is not AheadState.REFUSED:
            return inf
        if self.spares.carrier is not None:
            return self.append_bytes_max - self._snapshot_bytes
        return (
            0
            if self.write_point.sealed
            else self._ordinary_end(self.write_point) - self.write_point.at
        )

    @property
    def _snapshot_bytes_max(self) -> int:
        return room(self._config.segment_bytes) - self._config.reserve_bytes

    def keep_for_snapshot(self, size_bytes: int) -> None:
        """Set how much the next snapshot takes, as far as is known; what is declared from now on is added."""
        self._snapshot_bytes = min(size_bytes, self._config.kept_for_snapshot_bytes_max)
        self.append_bytes_max = self._ordinary_bytes(self._config.segment_bytes)

    @property
    def snapshot_spent(self) -> bool:
        """Whether a snapshot has used what was kept in the segment being written. For right after opening: a segment
        may have been freed by that snapshot, and no other one made for it."""
        point = self.write_point
        left = point.capacity_bytes - SEAL_BYTES - point.at
        return not point.sealed and left < self._snapshot_bytes

    @property
    def can_leave(self) -> bool:
        """Whether there is a spare to go on in, and the rest of the segment being written is small enough to leave."""
        point, kept = self.write_point, self._snapshot_bytes
        return (
            self.ahead is AheadState.REFUSED
            and not self._in_small_spare
            and point.at > point.capacity_bytes // 2
            and self.spares.for_bytes(kept + 1) is not None
        )

    def place(self, drafts: Sequence[Draft], *, leave: bool = False) -> list[Place]:
        """Return a place for each draft, and for a seal where a segment ends between them. All get places or none.

        Args:
            leave: do not use the segment being written, if a spare has room for all drafts that are essential: see
                `can_leave`.
        Raises:
            TooLarge: they would not fit an empty segment beside what is kept. A snapshot may also use what is kept
                for it.
            StoreBusy: the next segment is being made.
            StoreFull: the next segment cannot be made.
        """
        sizes = [draft.size_bytes for draft in drafts]
        total = sum(sizes)
        if total > self.append_bytes_max:
            self._check_snapshot(drafts, total)
        if self.ahead is AheadState.REFUSED:
            self._check_declared(drafts)
        point, kept = self.write_point, 0
        # With a segment ahead there is room for any purpose.
        if self.ahead is not AheadState.READY:
            kept = self._withheld_bytes(purpose_of(drafts))
        leave = leave and self._can_leave_with(drafts)
        here = not point.sealed and point.at + total <= self._ordinary_end(point) - kept
        if here and not leave:
            places = self._place_here(drafts, sizes)
        else:
            places = self._place_across(drafts, sizes, kept, leave=leave)
        if self._snapshot_bytes:
            self._update_snapshot_bytes(drafts)
        return places

    def _place_here(self, drafts: Sequence[Draft], sizes: Sequence[int]) -> list[Place]:
        """Place all in the segment being written: nearly always all of them fit, whatever they are."""
        number, first, at, capacity_bytes, position, _ = self.write_point
        places: list[Place] = []
        for draft, size in zip(drafts, sizes, strict=True):
            places.append(Place(draft, position, number, at, size))
            at += size
            position += 1
        self.write_point = WritePoint(number, first, at, capacity_bytes, position)
        return places

    @property
    def _is_carrier(self) -> bool:
        """Whether the segment being written has to do for a carrier: of the only other one something stays, and there
        is no space for a third."""
        if self.ahead is not AheadState.REFUSED or self.spares.carrier or not self._carries:
            return False
        others = self._others(2)
        return len(others) == 1 and others[0].references > 0 and not self._in_small_spare

    def _withheld_bytes(self, purpose: Purpose) -> int:
        """Return how much of the ordinary part is kept from this purpose: for dead letters, and where there is no
        carrier, for what compaction carries forward of one segment."""
        if purpose in (Purpose.ESSENTIAL, Purpose.MOVED):
            return 0
        share, letters = self._config.compaction_share_max, purpose is Purpose.DEAD_LETTERS
        if not (self.carrier_missing or self._is_carrier):
            share = 0.0 if letters else share
        elif not letters:
            share = 1.0
        elif not self.backlog.many_letters:
            # More letters would leave too little for what is carried forward.
            share = 1.0 - share
        ordinary = max(0, self._ordinary_bytes(self.write_point.capacity_bytes))
        kept, moved = int(share * ordinary), self.backlog.moved_bytes
        if moved and self.spares.carrier is None:
            kept = max(kept, moved + int((1 - FULL_SHARE) * ordinary))  # Acks come in between.
        return kept

    def _place_across(
        self, drafts: Sequence[Draft], sizes: Sequence[int], kept: int, *, leave: bool
    ) -> list[Place]:
        """Place drafts where the segment being written ends, or where the part of it ends that they may use."""
        places: list[Place] = []
        point, ahead, purpose = self.write_point, self.ahead, purpose_of(drafts)
        spare: Spare | None = None
        for draft, size in zip(drafts, sizes, strict=True):
            if leave or not self._fits(point, draft, size, ahead, kept):
                leave = False
                if ahead is AheadState.READY:
                    ahead, segment_bytes = AheadState.WANTED, self._config.segment_bytes
                elif spare is None and (spare := self._spare_for(draft, size, ahead, purpose)):
                    segment_bytes = spare.size_bytes
                else:
                    raise self._refusal(sum(sizes), ahead)
                point = self._roll(point, draft, places, segment_bytes)
            places.append(Place(draft, point.position, point.number, point.at, size))
            point = point._replace(at=point.at + size, position=point.position + 1)
        self.write_point, self.ahead = point, ahead
        if spare is not None:
            self.spares.assign(spare, point.number)
        return places

    def _carrier_for(self, purpose: Purpose) -> Spare | None:
        """Return the carrier, if there is one and this purpose may use it."""
        backlog = self.backlog
        wanted = purpose in (Purpose.MOVED, Purpose.SNAPSHOT) or (
            purpose is Purpose.DEAD_LETTERS and backlog.many_letters and not backlog.moved_bytes
        )
        return self.spares.carrier if wanted else None

    def _check_snapshot(self, drafts: Sequence[Draft], total: int) -> None:
        """Check the total: a snapshot may also use what is kept for it. Raises TooLarge."""
        alone = all(draft.snapshot and not draft.patient for draft in drafts)
        limit = self._snapshot_bytes_max if alone else self.append_bytes_max
        if total > limit:
            raise TooLarge("an append", total, limit)

    def _check_declared(self, drafts: Sequence[Draft]) -> None:
        """Check that the next snapshot, which contains what is declared now, will leave acks enough of each spare.

        Raises:
            StoreFull: it would not.
        """
        declared = sum(
            one.size_bytes for one in drafts if one.kind == Kind.DEFINITIONS and not one.snapshot
        )
        least = self._config.reserve_bytes // 2
        sizes = [one.size_bytes for one in self.spares.small]
        for size_bytes in (self.write_point.capacity_bytes, *sizes):
            if least <= room(size_bytes) - self._snapshot_bytes < least + declared:
                raise self._refusal(declared, self.ahead)

    def _ordinary_end(self, point: WritePoint) -> int:
        """Return the end of the ordinary part of this segment, as a byte."""
        return SEGMENT_HEADER_BYTES + self._ordinary_bytes(point.capacity_bytes)

    def _fits(
        self, point: WritePoint, draft: Draft, size: int, ahead: AheadState, kept: int
    ) -> bool:
        limit = point.capacity_bytes - SEAL_BYTES
        if not is_essential(draft):
            limit = self._ordinary_end(point) - kept
        elif ahead is AheadState.READY or (draft.snapshot and self.ahead is AheadState.WANTED):
            limit = self._ordinary_end(point)  # A snapshot can wait for a wanted segment.
        elif not draft.snapshot:
            limit -= self._snapshot_bytes
            if was_small_spare(self._config, point.capacity_bytes) and not self.spares.small:
                # The next snapshot makes the other spare free, and may be larger than the last one.
                limit -= self._config.reserve_bytes // 2
        return not point.sealed and point.at + size <= limit

    def _update_snapshot_bytes(self, drafts: Sequence[Draft]) -> None:
        """Adapt what is kept: the next snapshot contains these definitions, or is as large as this one."""
        found = [one for one in drafts if one.kind == Kind.DEFINITIONS and not one.patient]
        if found:
            before = 0 if found[0].snapshot else self._snapshot_bytes
            self.keep_for_snapshot(before + sum(one.size_bytes for one in found))

    def _spare_for(
        self, draft: Draft, size: int, ahead: AheadState, purpose: Purpose
    ) -> Spare | None:
        """Return the spare in which this draft goes, if it may use one and there is one.

        Raises:
            StoreBusy: the segment ahead is being made, so it is not known yet whether a spare is needed.
        """
        found = None
        if ahead is AheadState.REFUSED and is_essential(draft):
            kept = 0 if draft.snapshot else self._snapshot_bytes
            found = self.spares.for_bytes(size + kept)
            if found is None and draft.snapshot:  # Without it no ack would be taken any more.
                found = self._carrier_for(purpose)
        elif ahead is AheadState.REFUSED and not draft.snapshot:
            found = self._carrier_for(purpose)
        if found is not None and self._making_ahead:
            raise StoreBusy(size, "the next segment is being created")
        return found

    def _can_leave_with(self, drafts: Sequence[Draft]) -> bool:
        """Return whether a spare has room for those drafts that may use one."""
        size = sum(draft.size_bytes for draft in drafts if is_essential(draft))
        return self.spares.for_bytes(size) is not None

    def _roll(
        self, point: WritePoint, draft: Draft, places: list[Place], segment_bytes: int
    ) -> WritePoint:
        """Go on to the next segment. Behind the last record goes a seal, unless there is one or no room for it."""
        if not point.sealed and point.at + SEAL_BYTES <= point.capacity_bytes:
            seal = seal_draft(point.first, point.position - point.first, draft.time_us)
            places.append(Place(seal, point.position, point.number, point.at, SEAL_BYTES))
        return WritePoint(
            point.number + 1, point.position, SEGMENT_HEADER_BYTES, segment_bytes, point.position
        )  # fmt: skip

    def _refusal(self, needed: int, ahead: AheadState) -> Exception:
        if ahead is AheadState.REFUSED:
            return self._config.full_error(needed, self._free_bytes)
        return StoreBusy(needed, "the next segment is being created")
