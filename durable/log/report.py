"""What recovery found: how many records, which damage, and exactly which log positions are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .header import FIRST_NUMBER, SegmentHeader
from .record import FIRST_POSITION, SEAL_KIND, Header
from .series import Series


@dataclass(frozen=True, slots=True)
class LogGap:
    """Log positions [`start`, `end`) are missing. If empty, none is, but the chain is broken before `start`."""

    start: int
    end: int
    synced: bool = False
    """Whether all of them were confirmed. If not, they belong to the last commits before a crash, and some may
    have been confirmed."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [`at`, `end`) of a segment that are no valid record."""

    segment: int
    at: int
    end: int
    kept_as: str | None
    """The file with a copy of them; None if they were zeros, or there was no space."""


@dataclass(frozen=True, slots=True)
class TornTail:
    """What was behind the last valid record: the rest of a commit that a crash cut off.

    `size_bytes` 0 in a new segment: the segment before was sealed, but nothing of this one was written.
    The tail was cut, so log positions from `position` on are given out again. Damage to the very last record cannot
    be told from a torn tail: therefore a copy is kept.
    """

    segment: int
    at: int
    size_bytes: int
    missing_bytes: int
    """By how much the file was shorter than it had been made: somebody, or the file system, cut it."""
    position: int
    kept_as: str | None


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The state in which a store was found. Its log positions are [`start`, `end`), with gaps."""

    store_id: bytes
    formatted: bool
    start: int
    end: int
    found_end: int
    """The end of the records found: lower than `end` if records behind them are lost."""
    epoch: int
    """Epoch of the records that will be written from now on."""
    segments: int
    records: int
    bytes_read: int
    """Bytes of records and damage; zeros behind them do not count."""
    seconds: float
    gaps: tuple[LogGap, ...]
    absent: tuple[LogGap, ...]
    """Log positions of segments whose files are missing between others: they were freed, or somebody removed them."""
    damage: tuple[Damage, ...]
    torn: TornTail | None
    encrypted: bool = False
    """Whether new records are encrypted."""

    def with_lost(self, lost: Iterable[LogGap]) -> RecoveryReport:
        """Return the same report, with gaps for log positions that turned out to be lost."""
        return replace(self, gaps=tuple(sorted({*self.gaps, *lost}, key=lambda gap: gap.start)))

    def __str__(self) -> str:
        rate = self.bytes_read / self.seconds / 1e6 if self.seconds else 0.0
        words = [
            f"{self.records} records in {self.segments} segments, {self.bytes_read} bytes read in "
            f"{self.seconds:.3f} s ({rate:.0f} MB/s)"
        ]
        words += [
            f"lost: log positions {gap.start} to {gap.end - 1}"
            f" ({'confirmed' if gap.synced else 'possibly never confirmed'})"
            if gap.end > gap.start
            else f"chain broken before log position {gap.start}"
            for gap in self.gaps
        ]
        words += [
            f"damaged: bytes {one.at} to {one.end} of segment {one.segment}, kept as {one.kept_as}"
            for one in self.damage
        ]
        if self.torn is not None:
            words.append(
                f"cut off: {self.torn.size_bytes} bytes at byte {self.torn.at} of segment "
                f"{self.torn.segment}, kept as {self.torn.kept_as}; "
                f"{self.torn.missing_bytes} bytes of the file were missing"
            )
        return "; ".join(words)


@dataclass(slots=True)
class Continuity:
    """Compares the records found with how a log must go on, and collects the gaps. Must be fed in order."""

    expected: int | None = None
    """The next log position; None until something is found."""
    chain: int | None = None
    epoch: int = 0
    synced_end: int = 0
    records: int = 0
    gaps: list[LogGap] = field(default_factory=list)
    absent: list[LogGap] = field(default_factory=list)
    _gaps_before_epoch: int = 0
    """Number of gaps before the records of the current epoch."""
    _gaps_followed: int = 0
    """Number of gaps that have a record behind them."""
    _segment_number: int | None = None
    _segment_missing: bool = False

    def begin_segment(self, number: int, header: SegmentHeader | None) -> None:
        """Begin a segment file; `header` is None if it is damaged."""
        self._segment_missing |= (
            self._segment_number is not None and number > self._segment_number + 1
        )
        self._segment_number = number
        if number == FIRST_NUMBER and self.expected is None:
            self.expected = FIRST_POSITION
        if header is not None:
            self._advance_to(header.first)
            if self.chain is None:
                self.chain = header.chain

    def skip_to(self, position: int) -> None:
        """Begin in the middle of the segment: it was read up to this log position at another time."""
        self.expected, self.chain = position, None

    def add_record(self, header: Header) -> None:
        _, _, kind, _, _, _, _, _, chain, unsynced, epoch, position, _, _, checksum = header
        if epoch > self.epoch:
            self._begin_epoch(epoch)
        if position != self.expected or self._segment_missing:
            self._advance_to(position)
            self._gaps_followed = len(self.gaps)
        if chain != self.chain and self.chain is not None:
            self.gaps.append(LogGap(position, position))
            self._gaps_followed = len(self.gaps)
        follows = kind != SEAL_KIND
        self.expected, self.chain = position + follows, checksum
        self.records += follows
        synced_end = position - unsynced
        if synced_end > self.synced_end:
            self.synced_end = synced_end

    def add_series(self, series: Series) -> None:
        """As `add_record` of each of these, which follow one another."""
        self.add_record(series.header)
        last = series.last
        self.expected, self.chain = last.next_position, last.checksum
        self.records += series.count - 1
        # Within one epoch the synced end never falls.
        self.synced_end = max(self.synced_end, last.synced_end)

    def _begin_epoch(self, epoch: int) -> None:
        """Begin a later epoch. Which of the gaps before it had been confirmed, only earlier records tell: the later
        start found those gaps, and took everything that it found for durable."""
        self.epoch = epoch
        self._set_synced(range(self._gaps_before_epoch, self._gaps_followed), self.synced_end)
        self._gaps_before_epoch = self._gaps_followed

    def _advance_to(self, position: int) -> None:
        if self.expected is None:
            self.expected = position
        elif position > self.expected:
            found = self.absent if self._segment_missing else self.gaps
            found.append(LogGap(self.expected, position))
            self.expected, self.chain = position, None
        self._segment_missing = False

    def finish(self, known_durable: range, first: int | None) -> None:
        """Finish: everything was fed, and the gaps are complete. Missing log positions of `known_durable` are lost.
        They are not given out again, so that later readers of the log find the gap.

        Args:
            known_durable: log positions that were durable; from the first of them on nothing has been freed.
            first: where the log begins, if there is anything.
        """
        missing, self.absent = self.absent, []
        if known_durable and first is not None and first > known_durable.start:
            missing = [LogGap(known_durable.start, first), *missing]
        for one in missing:
            freed_end = (
                min(max(one.start, known_durable.start), one.end) if known_durable else one.end
            )
            if one.start < freed_end:
                self.absent.append(LogGap(one.start, freed_end))
            if freed_end < one.end:
                self.gaps.append(LogGap(freed_end, one.end))
        found_end = self.expected or FIRST_POSITION
        if found_end < known_durable.stop:
            self.gaps.append(LogGap(found_end, known_durable.stop))
            self.expected = known_durable.stop
        synced_end = max(self.synced_end, known_durable.stop)
        self._set_synced(range(self._gaps_before_epoch, len(self.gaps)), synced_end)
        self.gaps.sort(key=lambda gap: gap.start)

    def _set_synced(self, which: range, synced_end: int) -> None:
        """Set for these gaps whether they were confirmed: all up to `synced_end` were."""
        for index in which:
            gap = self.gaps[index]
            self.gaps[index] = replace(gap, synced=gap.end <= synced_end)
