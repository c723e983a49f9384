"""A memory disk on which things go wrong when the test says so.

    faults = Faults(power_cut_at=17)      # or sync_error_at=3, or before_sync=released.wait
    disk = FaultyDisk(volume, faults)
    ...                                   # the 17th change and all calls after it raise PowerCut
    left = volume.after_power_cut(Random(seed))

Changes are counted: every create, write, allocation, truncation, sync, rename and unlink is one. The write that
the power cut hits has reached the cache as a whole; `after_power_cut` decides which of its sectors reached stable
storage, as for everything that was not synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .disk import Buffer, Directory, Disk, File
from .memory_disk import MemoryDirectory, MemoryDisk, MemoryFile, Volume


class PowerCut(BaseException):
    """The machine is off. Not an Exception, because no code may catch it and go on."""


@dataclass(slots=True)
class Faults:
    """The faults to come, and counts. A test may change them at any time."""

    power_cut_at: int | None = None
    """This change and all after it raise PowerCut; this one, unless a sync, has reached the cache."""
    sync_error_at: int | None = None
    """This fdatasync fails with EIO, and what was dirty is lost: later syncs do not report it."""
    write_error: int | None = None
    """Every write fails with this errno."""
    read_error: int | None = None
    """Every read fails with this errno."""
    before_sync: Callable[[], object] | None = None
    """Called by every fdatasync before anything else. If it does not return, the disk hangs."""
    changes: int = 0
    syncs: int = 0

    def change(self) -> bool:
        """Count a change. Return True if the power cut hits it. Raises PowerCut if the power was cut before."""
        cut = self.power_cut_at
        if cut is not None and self.changes >= cut:
            raise PowerCut
        self.changes += 1
        return self.changes == cut

    @contextmanager
    def cached_change(self) -> Iterator[None]:
        """Run the block as one change. It reaches the cache even if the power cut hits it."""
        cut = self.change()
        yield
        if cut:
            raise PowerCut


class FaultyFile(File):
    def __init__(self, file: MemoryFile, faults: Faults) -> None:
        self._file, self._faults = file, faults

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def pread(self, size_bytes: int, at: int) -> bytes:
        if self._faults.read_error is not None:
            raise OSError(self._faults.read_error, "read failed")
        return self._file.pread(size_bytes, at)

    def data_end(self) -> int:
        return self._file.data_end()

    def forget_read(self, start: int) -> None:
        self._file.forget_read(start)

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        with self._faults.cached_change():
            if self._faults.write_error is not None:
                raise OSError(self._faults.write_error, "write failed")
            self._file.pwritev(pieces, at)

    def preallocate(self, size_bytes: int) -> None:
        with self._faults.cached_change():
            self._file.preallocate(size_bytes)

    def truncate(self, size_bytes: int) -> None:
        with self._faults.cached_change():
            self._file.truncate(size_bytes)

    def fdatasync(self) -> None:
        faults = self._faults
        if faults.change():
            raise PowerCut
        faults.syncs += 1
        if faults.before_sync is not None:
            faults.before_sync()
        if faults.syncs == faults.sync_error_at:
            self._file.inode.forget_dirty()
            raise OSError(errno.EIO, "fdatasync failed")
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()


class FaultyDirectory(Directory):
    def __init__(self, inner: MemoryDirectory, faults: Faults) -> None:
        self._inner, self.faults = inner, faults

    @property
    def path(self) -> str:
        return self._inner.path

    def names(self) -> list[str]:
        return self._inner.names()

    def create(self, name: str) -> File:
        with self.faults.cached_change():
            file = self._inner.create(name)
        return self._wrap(file)

    def open(self, name: str) -> File:
        return self._wrap(self._inner.open(name))

    def _wrap(self, file: File) -> File:
        assert isinstance(file, MemoryFile)
        return FaultyFile(file, self.faults)

    def rename(self, old: str, new: str) -> None:
        with self.faults.cached_change():
            self._inner.rename(old, new)

    def unlink(self, name: str) -> None:
        with self.faults.cached_change():
            self._inner.unlink(name)

    def sync_directory(self) -> None:
        if self.faults.change():
            raise PowerCut
        self._inner.sync_directory()

    def directory(self, name: str) -> Directory:
        return FaultyDirectory(self._inner.directory(name), self.faults)

    def make_directory(self, name: str) -> None:
        with self.faults.cached_change():
            self._inner.make_directory(name)

    def remove_directory(self, name: str) -> None:
        with self.faults.cached_change():
            self._inner.remove_directory(name)


class FaultyDisk(FaultyDirectory, Disk):
    def __init__(self, volume: Volume, faults: Faults | None = None) -> None:
        self._disk = MemoryDisk(volume)
        super().__init__(self._disk, faults or Faults())
        self.volume = volume

    def lock(self) -> None:
        self._disk.lock()

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def close(self) -> None:
        self._disk.close()
