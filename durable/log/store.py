"""One open directory: all work on it that blocks. The log calls it in worker threads, except for `write_at_once`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from ..errors import StoreFailed, StoreFull
from .allocation import Allocator
from .committing import Commit, Committer, ConvertSpare, Sync, Write
from .config import LogConfig
from .disk import NO_SPACE, Disk, File, Syncer, write_zeros
from .encryption import Encryption
from .header import next_spare_number, segment_name, spare_name, spare_number
from .identity import set_aside
from .open_files import OpenFiles
from .placing import AheadState
from .reader import Reader
from .record import store_seed
from .recovery import FindStart, Recovered, recover
from .spares import CARRIER, NEW, Spare, was_small_spare
from .verification import Check, Visit


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
        self._rename_failed: set[int] = set()
        """Segments that should become spares, but there was no space for the name: the next attempt removes them."""
        self._removed_sizes: list[int] = []
        """Sizes of those that were removed: a new spare is made in that size, if it is large enough."""
        self.path = disk.path
        self._spares = self._open_spares()
        self._spare_numbers = count(next_spare_number(disk.names()))
        self._unmade_number: int | None = None
        """Number of a spare for which there was no space: a file left by an attempt that could not be undone has it."""
        self.report = report = recovered.report
        self.segments = recovered.segments
        self.committer = Committer(
            config, self.segments, recovered.write_point, store_id=report.store_id, epoch=report.epoch,
            chain=recovered.chain, ahead_ready=recovered.ahead_ready, cipher=recovered.cipher,
            spares=[Spare(number, file.size_bytes) for number, file in self._spares.items()],
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

    def _open_spares(self) -> dict[int, File]:
        """Open all spares, by number. They stay open, because there may be no descriptor left when one is needed. A
        carrier of another size than segments have now cannot be used, and is removed to free its space."""
        found: dict[int, File] = {}
        for name in self._disk.names():
            number = spare_number(name)
            if number is not None:
                try:
                    found[number] = self._disk.open(name)
                except FileNotFoundError:
                    pass
                except IsADirectoryError:
                    # A directory that is not ours. Another spare can use another number; the carrier needs this one.
                    if number == CARRIER:
                        set_aside(self._disk, name, f"damaged.{name}")
        carrier = found.get(CARRIER)
        if carrier is not None and carrier.size_bytes != self._config.segment_bytes:
            found.pop(CARRIER).close()
            self._disk.unlink(spare_name(CARRIER))
        return found

    def _keep_carrier(self) -> None:
        """Make the segment ahead the carrier if there should be one and is none: a kill may have come when the carrier
        was about to be written as a segment, or before another one was made. Without space for its name it stays the
        segment ahead."""
        placer = self.committer.placer
        if placer.carrier_missing:
            with suppress(StoreFull):
                with self._allocator.space_for(self._config.segment_bytes):
                    self._disk.rename(
                        segment_name(placer.write_point.number + 1), spare_name(CARRIER)
                    )
                self._disk.sync_directory()
                file = self._spares[CARRIER] = self._disk.open(spare_name(CARRIER))
                placer.ahead_became_carrier(Spare(CARRIER, file.size_bytes))

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
        """Make a spare a segment. It is filled with zeros first: records from when it last was a segment would be read
        as records of this one. If that was done before, by a commit that is carried out again, only the name is
        synced."""
        with self._allocator.space_for(needed_bytes):
            if step.number not in self._files:
                file = self._spares[step.spare]
                write_zeros(file, 0, file.data_end())
                file.fdatasync()
                self._disk.rename(spare_name(step.spare), segment_name(step.number))
                self._files.add(step.number, self._spares.pop(step.spare))
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
        """Make a new spare, or let the one with this number grow to that size; durable on return. A spare that replaces
        one which could not be renamed is made in the size of that one, if that is enough. The place of a removed
        segment is left to the carrier, or to the next segment.

        Raises:
            StoreFull: not enough space. An existing spare is as it was, or larger.
            OSError: the disk failed.
        """
        if not wanted.is_carrier:
            return self._made_spare(wanted, in_place=False)
        with self._claim_place() as claimed:
            return self._made_spare(wanted, in_place=claimed)

    def _made_spare(self, wanted: Spare, *, in_place: bool) -> Spare:
        number, size, least = wanted
        carrier = wanted.is_carrier
        free, left = self._disk.free_bytes(), self._config.free_bytes_min
        if in_place:
            left = 0
        elif self.place_vacant and free >= self._config.segment_bytes:
            left = max(left, self._config.segment_bytes)
        if (
            least is not None
            and self._removed_sizes
            and least <= self._removed_sizes[-1] <= free - left
        ):
            size = min(size, self._removed_sizes[-1])
        if free < size + left or (carrier and CARRIER in self._spares):
            raise self._allocator.full_error(
                size
            )  # Or the last carrier is in use, but is no segment yet.
        if number == NEW:
            if self._unmade_number is None:
                self._unmade_number = next(self._spare_numbers)
            number = self._unmade_number
        file = self._spares.get(number)
        with self._allocator.space_for(size):
            if file is None:
                self._spares[number] = self._allocator.allocate(spare_name(number), size)
            else:
                file.preallocate(size)
                file.fdatasync()
        if number == self._unmade_number:
            self._unmade_number = None
            del self._removed_sizes[-1:]
        return Spare(number, size)

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
            file = self._files.open(number) if reuse else None
        kept = file is not None and self._spare(number, file)
        self._files.drop(number)  # In any case: while it is open, it takes its space.
        if not kept:
            with suppress(FileNotFoundError):  # Removed by an earlier attempt, or by others.
                self._disk.unlink(segment_name(number))
            self.place_vacant = True

    def _spare(self, number: int, file: File) -> bool:
        """Rename a segment to a spare, so that at no moment others can take its space. Its contents stay until it is
        used. Return False if it was none, is gone, or there is no space for its new name for the second time.

        Raises:
            OSError: there is no space for its new name. It stays, as others could take the space of a removed file.
        """
        if not was_small_spare(self._config, file.size_bytes):
            return False
        spare = Spare(next(self._spare_numbers), file.size_bytes)
        try:
            self._disk.rename(segment_name(number), spare_name(spare.number))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in NO_SPACE or number not in self._rename_failed:
                self._rename_failed.add(number)
                raise
            self._removed_sizes.append(file.size_bytes)
            return False
        self._spares[spare.number] = file
        self._reused_spares.append(spare)
        return True

    def close(self) -> None:
        """Close all files and release the lock. No thread may be reading or writing."""
        self._files.close()
        for file in self._spares.values():
            file.close()
        self._spares.clear()
        self._disk.close()


def never_stop() -> None:
    """A Check that never raises."""


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
