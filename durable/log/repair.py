"""Prepares what recovery has found for writing: copies of damage are kept, the end is cut clean, and all is stable.

What was found is on stable storage before anything is written behind it: after a SIGKILL some of it may be in the
cache only. After a failed sync it may even be in the cache as if it had been written, so the end of the log is
written again.
"""

from __future__ import annotations

from .config import LogConfig
from .damage import save_copy
from .disk import NO_SPACE, Disk, File, write_zeros
from .header import next_spare_number, segment_name, small_spare_numbers, spare_name
from .placing import WritePoint
from .record import FIRST_POSITION
from .report import Continuity, Damage, TornTail
from .scan import WINDOW_BYTES, Damaged
from .segments import Segment
from .spares import SPARES
from .verification import FoundSegment


class Repair:
    """The repair of one store."""

    def __init__(self, disk: Disk, config: LogConfig) -> None:
        self._disk, self._config = disk, config
        self.damage: list[Damage] = []
        self.torn: TornTail | None = None
        self.ahead_ready = False
        """Whether there is a segment ahead."""

    def run(
        self, found: list[FoundSegment], unused: list[FoundSegment], last: Segment | None,
        continuity: Continuity,
    ) -> WritePoint:  # fmt: skip
        """Return where writing goes on. All files are closed.

        Args:
            found: segments that have been used, without those that were not read.
            unused: segments behind them: at most one is the segment ahead.
            last: the last segment that has been used; not in `found` if nothing was read.
        """
        position = continuity.expected or FIRST_POSITION
        point = self._prepare_end(found, last, position)
        for one in found[:-2]:
            self._save_damage(one)
            one.close()
        for one in found[-2:]:  # These stay open until they are stable.
            self._save_damage(one)
        ready = [one for one in unused if self._make_ready(one, point)]
        self.ahead_ready = bool(ready)
        self._make_stable(found[-2:], continuity.synced_end)
        for one in (*found, *unused):
            one.close()
        return point

    def _prepare_end(
        self, found: list[FoundSegment], last: Segment | None, position: int
    ) -> WritePoint:
        """Return where writing goes on; what had to be cut for that is `torn`."""
        if not found:
            number = last.number if last else 0
            return WritePoint(number, position, 0, 0, position, sealed=True)
        segment = found[-1].segment
        if segment.sealed:
            # A record follows a seal at once. If there is none, a commit was cut off.
            self.torn = TornTail(segment.number + 1, 0, 0, 0, position, None)
        else:
            self.torn = self._cut_tail(found[-1], position)
        return WritePoint(
            segment.number, segment.first, segment.end_at, segment.capacity_bytes, position,
            sealed=segment.sealed,
        )  # fmt: skip

    def _cut_tail(self, one: FoundSegment, position: int) -> TornTail | None:
        """Clear what is behind its last record, and restore its size. Return what was there of a torn commit."""
        segment, file, torn = one.segment, one.file, None
        tail = one.take_tail() or Damaged(segment.end_at, segment.end_at)
        missing = max(0, one.header.size_bytes - file.size_bytes) if one.header else 0
        dirty = tail.end - tail.at
        if dirty or missing:
            kept_as = save_copy(self._disk, segment.number, file, tail.at, tail.end)
            torn = TornTail(segment.number, tail.at, dirty, missing, position, kept_as)
        if not _clear(file, tail):
            file.truncate(tail.at)
        self._grow(one)
        segment.capacity_bytes = file.size_bytes
        return torn

    def _grow(self, one: FoundSegment) -> None:
        """Grow it to its full size, so that writing cannot fail for lack of space; without space it ends here."""
        size = one.header.size_bytes if one.header else self._config.segment_bytes
        if one.file.size_bytes >= size:
            return
        try:
            one.file.preallocate(size)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def _save_damage(self, one: FoundSegment) -> None:
        for part in one.damaged:
            number = one.segment.number
            kept_as = save_copy(self._disk, number, one.file, part.at, part.end)
            self.damage.append(Damage(number, part.at, part.end, kept_as))

    def _save_torn(self, one: FoundSegment, position: int) -> None:
        """Report what is in the segment behind a seal, without a valid record: its first write was torn."""
        number, at, end = one.segment.number, one.damaged[0].at, one.damaged[-1].end
        kept_as = save_copy(self._disk, number, one.file, at, end)
        self.torn = TornTail(number, at, end - at, 0, position, kept_as)

    def _make_ready(self, one: FoundSegment, point: WritePoint) -> bool:
        """Return whether this unused segment can be the next one; if not, it is removed, or becomes a spare.

        If its first write was torn, it is filled with zeros again rather than removed: it may have been the carrier,
        or made while there was still space.
        """
        size, name = one.file.size_bytes, segment_name(one.segment.number)
        comes_next = one.segment.number == point.number + 1
        # Nothing is written to it before the seal is stable. Without a seal, no crash leaves anything here.
        if comes_next and point.sealed and one.damaged:
            self._save_torn(one, point.position)
        else:
            self._save_damage(one)
        if comes_next and size == self._config.segment_bytes and _refill_zeros(one):
            return True
        names = self._disk.names()
        if size >= self._config.segment_bytes or len(small_spare_numbers(names)) >= SPARES:
            self._disk.unlink(name)
        else:  # A spare that was about to become a segment. `Store` fills it with zeros before it does.
            self._disk.rename(name, spare_name(next_spare_number(names)))
        return False

    def _make_stable(self, found: list[FoundSegment], synced_end: int) -> None:
        if found:
            _write_again(found[-1], synced_end)
        for one in found:
            one.file.fdatasync()
        self._disk.sync_directory()


def _clear(file: File, part: Damaged) -> bool:
    """Write zeros in place, if possible: on a full disk, others would take the space that a cut gives back."""
    try:
        write_zeros(file, part.at, part.end)
    except OSError:
        return False
    return True


def _refill_zeros(one: FoundSegment) -> bool:
    """Fill it with zeros again, on stable storage; return whether that worked. Torn bytes must not reappear behind
    records that are written later."""
    if not all(_clear(one.file, part) for part in one.damaged):
        return False
    try:
        if one.damaged:
            one.file.fdatasync()
    except OSError:
        return False
    return True


def _write_again(one: FoundSegment, synced_end: int) -> None:
    """Write again what no record proves to be synced: at most a commit, and only in the last segment, because the
    one before was synced first. After a failed sync the kernel takes such pages for clean, so no sync would write
    them. On a copy-on-write file system this may take space, and must fail if there is none."""
    segment = one.segment
    begin = 0 if synced_end <= segment.first else segment.lookup(synced_end)
    for at in range(begin, segment.end_at, WINDOW_BYTES):
        data = one.file.pread(min(WINDOW_BYTES, segment.end_at - at), at)
        one.file.pwritev([data], at)
