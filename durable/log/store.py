"""One open directory: all work on it that blocks. The log calls it in worker threads, except for `write_at_once`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import StoreFailed, StoreFull
from .allocation import Allocator
from .check import Check, never_stop
from .committing import Commit, Committer, ConvertSpare, Sync, Write
from .config import LogConfig
from .disk import NO_SPACE, Disk, File, Syncer
from .encryption import Encryption
from .header import segment_name
from .open_files import OpenFiles
from .placing import AheadState
from .reader import Reader
from .record import store_seed
from .recovery import FindStart, Recovered, recover
from .spare_files import SpareFiles
from .spares import CARRIER, Spare
from .verification import Visit


class Store:
    """The files of a log. It carries out one commit at a time; any thread may read."""

    def __init__(self, disk: Disk, config: LogConfig, recovered: Recovered) -> None:
        self._disk, self._config = disk, config
        self._allocator = Allocator(disk, config)
        self._files = OpenFiles(disk)
        self.place_vacant = False
        """Whether the next segment takes the place of one that was removed, or may have been."""
        self.unremoved: list[int] = []
        """Segments that are free, but whose files are not gone for certain."""
        self.remove_error: OSError | None = None
        """Why the first of them could not be removed."""
        self._reused_spares: list[Spare] = []
        """Spares that some of them have become, until `remove` returns and reports them."""
        self.path = disk.path
        self._spares = SpareFiles(disk, config, self._allocator)
        self.report = report = recovered.report
        self.segments = recovered.segments
        self.committer = Committer(
            config, self.segments, recovered.write_point, store_id=report.store_id, epoch=report.epoch,
            chain=recovered.chain, ahead_ready=recovered.ahead_ready, cipher=recovered.cipher,
            spares=self._spares.spares(),
        )  # fmt: skip
        if recovered.ahead_ready:
            self._keep_carrier()
        self.cipher = recovered.cipher
        """None: nothing in this store is encrypted."""
        self.reader = Reader(
            self.segments, store_seed(report.store_id), self._files.file, recovered.decrypt
        )

    def syncer(self) -> Syncer | None:
        """Return a new syncer for commits; None if they must be synced by the thread that carries them out."""
        return self._disk.syncer()

    def _keep_carrier(self) -> None:
        """Make the segment ahead the carrier if there should be one and is none: a kill may have come when the carrier
        was about to be written as a segment, or before another one was made. Without space for its name it stays the
        segment ahead."""
        placer = self.committer.placer
        if placer.carrier_missing:
            with suppress(StoreFull):
                carrier = self._spares.make_carrier_of(placer.write_point.number + 1)
                placer.ahead_became_carrier(carrier)

    def carry_out(self, commit: Commit) -> None:
        """Carry out the steps of a commit.

        Raises:
            StoreFull: no space to write; nothing is lost, and the same commit can be carried out later.
            OSError: the disk failed. Whatever the reason, this store must not sync again.
        """
        for step in commit.steps:
            if isinstance(step, Sync):
                self._files.file(step.number).fdatasync()
            elif isinstance(step, ConvertSpare):
                self._convert_spare(step, commit.size_bytes)
            else:
                self._write(step, self._files.file(step.number), commit.size_bytes)

    def _write(self, step: Write, file: File, needed_bytes: int) -> None:
        with self._allocator.space_for(needed_bytes):
            file.pwritev(step.pieces, step.at)

    def write_at_once(self, commit: Commit) -> File | None:
        """Write a commit that is all in one open file, for a caller that must not wait. Return the file, which has to
        be synced; None if the commit needs more than one file, or that is not open. Raises as `carry_out`."""
        match commit.steps:
            case [Write(number) as step, Sync()] if number in self._files:
                file = self._files.file(number)
                self._write(step, file, commit.size_bytes)
                return file
        return None

    def _convert_spare(self, step: ConvertSpare, needed_bytes: int) -> None:
        """Make a spare a segment. If that was done before, by a commit that is carried out again, only the name is
        synced."""
        with self._allocator.space_for(needed_bytes):
            if step.number not in self._files:
                self._files.add(step.number, self._spares.convert(step.spare, step.number))
        self._disk.sync_directory()

    def open_next(self) -> None:
        """Open the files that will be written next: later there may be no descriptor left for them, and a commit that
        fails stops the store for good."""
        placer = self.committer.placer
        if not placer.write_point.sealed:
            self._files.file(placer.write_point.number)
        if placer.ahead is AheadState.READY:
            self._files.file(placer.write_point.number + 1)

    def use_carrier(self, number: int) -> None:
        """Make the carrier segment `number`.

        Raises:
            StoreFull: there is no space to write its name; it still is the carrier.
            OSError: the disk failed, or has no space to sync the name: it is uncertain which of the two it is.
        """
        self._convert_spare(ConvertSpare(number, CARRIER), self._config.segment_bytes)

    def make_segment(self, number: int, carrier_missing: bool) -> None:
        """Make a file for segment `number`: allocated, filled with zeros, and durable.

        In place of a removed segment it may be made even if less than `free_bytes_min` is left, as others lose nothing
        by that. If it were refused, the snapshot that freed the old segment would have used up what is kept for
        snapshots, and no other snapshot would fit.

        Args:
            carrier_missing: leave room for a carrier, too.
        Raises:
            StoreFull: not enough space; nothing is left of the attempt.
            OSError: the disk failed.
        """
        size = self._config.segment_bytes
        with self._claim_place() as claimed:
            left = 0 if claimed else self._config.free_bytes_min
            if carrier_missing:
                left += size
            if self._disk.free_bytes() < size + left:
                raise self._allocator.full_error(size)
            with self._allocator.space_for(size):
                self._files.add(number, self._allocator.allocate(segment_name(number), size))
        self._files.close_excess()

    @contextmanager
    def _claim_place(self) -> Iterator[bool]:
        """Yield whether the place of a removed segment can be taken. It is claimed at once, because another thread may
        remove a further segment during the block, whose place is another one; given back if the block raises."""
        claimed = self.place_vacant
        if claimed:
            self.place_vacant = False
        try:
            yield claimed
        except BaseException:
            if claimed:
                self.place_vacant = True
            raise

    def make_spare(self, wanted: Spare) -> Spare:
        """Make a spare, or let one grow, as `SpareFiles.make`. The place of a removed segment is left to the carrier, or
        to the next segment."""
        if not wanted.is_carrier:
            return self._spares.make(wanted, self._available_bytes())
        with self._claim_place() as claimed:
            available = self._disk.free_bytes() if claimed else self._available_bytes()
            return self._spares.make(wanted, available)

    def _available_bytes(self) -> int:
        """Return how much spares may take now."""
        free, left = self._disk.free_bytes(), self._config.free_bytes_min
        if self.place_vacant and free >= self._config.segment_bytes:
            left = max(left, self._config.segment_bytes)
        return free - left

    def remove(self, spares_max: int = 0) -> list[Spare]:
        """Remove the files of the segments that are `unremoved`. Readers that have one open can go on reading.

        Returns:
            Those that became spares again: at most `spares_max`, of segments that had been spares.
        Raises:
            OSError: it is not certain that any are gone; all stay `unremoved`.
        """
        left: list[int] = []
        self.remove_error = None
        for number in self.unremoved:
            try:
                with self._files.opening:
                    self._remove(number, reuse=len(self._reused_spares) < spares_max)
            except OSError as error:
                left.append(number)
                self.remove_error = self.remove_error or error
        self._disk.sync_directory()
        self.unremoved = left
        reused, self._reused_spares = self._reused_spares, []
        return reused

    def _remove(self, number: int, *, reuse: bool) -> None:
        """Remove a segment, or make it a spare. The caller holds `OpenFiles.opening`. Raises OSError, as `remove`."""
        file: File | None = None
        with suppress(OSError):  # Without a descriptor it is removed, which takes none.
            file = self._files.open_locked(number) if reuse else None
        spare = None if file is None else self._spares.reuse(number, file)
        self._files.drop(number)  # In any case: while it is open, it takes its space.
        if spare is not None:
            self._reused_spares.append(spare)
            return
        with suppress(FileNotFoundError):  # Removed by an earlier attempt, or by others.
            self._disk.unlink(segment_name(number))
        self.place_vacant = True

    def close(self) -> None:
        """Close all files and release the lock. No thread may be reading or writing."""
        self._files.close()
        self._spares.close()
        self._disk.close()


def open_store(
    disk: Disk, config: LogConfig, *, new_store_id: bytes, now_us: int, clock: Callable[[], float],
    start: int | FindStart = 0, visit: Visit | None = None, encryption: Encryption | None = None,
    check: Check = never_stop,
) -> Store:  # fmt: skip
    """Lock the directory, recover what is in it, and prepare it for writing.

    Raises:
        StoreInUse, ForeignStore, NewerFormat: this directory cannot be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, and the keys given do not fit.
        StoreFailed: the disk failed while the store was being opened.
    """
    disk.lock()
    try:
        recovered = recover(
            disk, config, new_store_id=new_store_id, now_us=now_us, clock=clock, start=start,
            visit=visit, encryption=encryption, check=check,
        )  # fmt: skip
        store = Store(disk, config, recovered)
        store.open_next()
    except OSError as error:
        disk.close()
        advice = "`mesh-broker salvage` copies what can be read"
        if error.errno in NO_SPACE:
            advice = "free some space, then start again"
        raise StoreFailed(f"{disk.path} cannot be opened: {error}; {advice}") from error
    except BaseException:
        disk.close()
        raise
    return store
