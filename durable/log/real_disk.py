"""Directories of this machine's file systems."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ..errors import StoreFailed, StoreInUse
from .disk import Buffer, Directory, Disk, File, Syncer
from .kernel_sync import kernel_sync

LOCK_NAME = "lock"
PIECES_MAX = 1024
"""IOV_MAX of Linux."""
JOIN_BYTES_MAX = 64 * 1024
"""Below this, one copy costs less than the kernel's work for many pieces."""


class RealFile(File):
    """Closed by `close`, or when the last reader drops it: a segment may be freed while it is being read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pread(self, size_bytes: int, at: int) -> bytes:
        data = os.pread(self._descriptor, size_bytes, at)
        while 0 < len(data) < size_bytes:  # Never seen on a local disk; POSIX allows it.
            more = os.pread(self._descriptor, size_bytes - len(data), at + len(data))
            if not more:
                break
            data += more
        return data

    def data_end(self) -> int:
        # Space that was allocated and not written is a hole, unless the cache has pages of it.
        end = 0
        try:
            while True:
                start = os.lseek(self._descriptor, end, os.SEEK_DATA)
                end = os.lseek(self._descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            return end if error.errno == errno.ENXIO else self.size_bytes

    def forget_read(self, start: int) -> None:
        with suppress(OSError):  # Then they stay in the cache.
            os.posix_fadvise(self._descriptor, start, 0, os.POSIX_FADV_DONTNEED)

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        if len(pieces) > 1 and sum(map(len, pieces)) <= JOIN_BYTES_MAX:
            pieces = [b"".join(pieces)]
        todo = iter(pieces)
        while some := [*islice(todo, PIECES_MAX)]:
            at = self._write_some(some, at)

    def _write_some(self, pieces: list[Buffer], at: int) -> int:
        """Write these pieces; return the byte behind them."""
        end = at + sum(map(len, pieces))
        written = os.pwritev(self._descriptor, pieces, at)
        if at + written < end:  # A signal, or a nearly full disk: writing the rest shows which.
            rest = memoryview(b"".join(pieces))[written:]
            at += written
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                rest, at = rest[written:], at + written
        return end

    def preallocate(self, size_bytes: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


class RealDirectory(Directory):
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @property
    def path(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path))

    def create(self, name: str) -> File:
        return self._open(name, os.O_CREAT | os.O_EXCL)

    def open(self, name: str) -> File:
        return self._open(name, 0)

    def _open(self, name: str, flags: int) -> File:
        path = self._path / name
        irregular = IsADirectoryError(errno.EISDIR, "Not a regular file", str(path))
        try:
            # With O_NONBLOCK, opening what is no regular file waits for nobody.
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)
        except OSError as error:
            if error.errno == errno.ENXIO:  # A socket.
                raise irregular from error
            raise
        file = RealFile(descriptor)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise irregular
        return file

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path / old, self._path / new)

    def unlink(self, name: str) -> None:
        os.unlink(self._path / name)

    def sync_directory(self) -> None:
        _sync_directory(self._path)

    def directory(self, name: str) -> Directory:
        return RealDirectory(self._path / name)

    def make_directory(self, name: str) -> None:
        os.mkdir(self._path / name, 0o700)

    def remove_directory(self, name: str) -> None:
        os.rmdir(self._path / name)


class RealDisk(RealDirectory, Disk):
    """The directory `path`; it is created, with access for its owner only, if it does not exist."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if not self._path.is_dir():
            self._path.mkdir(mode=0o700)
            _sync_directory(self._path.parent)
        self._lock: int | None = None
        self._directory: int | None = None
        """Open as long as the lock is held: a commit must not fail because there is no descriptor left."""

    def lock(self) -> None:
        self._lock = take_lock(self._path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
        try:
            self._directory = _open_directory(self._path)
        except OSError as error:
            self.close()
            raise StoreFailed(f"{self._path} cannot be locked: {error}") from error

    def syncer(self) -> Syncer | None:
        return kernel_sync()

    def sync_directory(self) -> None:
        if self._directory is None:
            super().sync_directory()
        else:
            _sync(self._directory, self._path)

    def free_bytes(self) -> int:
        return free_bytes(self._path)

    def close(self) -> None:
        for descriptor in (self._directory, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._directory = self._lock = None


def free_bytes(path: Path) -> int:
    """Return by how much files in this directory may still grow."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def take_lock(directory: Path, flags: int, kind: int) -> int:
    """Return a descriptor that holds the lock until it is closed. Raises StoreInUse, StoreFailed."""
    # flock and not lockf: with lockf the same process gets in twice, and the lock is gone as soon as any
    # descriptor of the file is closed.
    try:
        # Without O_NONBLOCK, opening a FIFO only to read would wait for somebody who writes to it.
        flags |= os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(directory / LOCK_NAME, flags, 0o600)
    except OSError as error:  # The name is a directory, or belongs to another user.
        raise StoreFailed(f"{directory} cannot be locked: {error}") from error
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(str(directory)) from None
    return descriptor


def _open_directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync_directory(path: Path) -> None:
    descriptor = _open_directory(path)
    try:
        _sync(descriptor, path)
    finally:
        os.close(descriptor)


def _sync(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:  # The original error does not name the directory.
        raise OSError(error.errno, error.strerror, str(path)) from error
