"""A directory that is read and never changed. Recovery runs on it as on any other: what it would write, cut or
remove happens in memory only.

So `mesh-broker inspect`, `verify` and `salvage` find exactly what a broker would find, and leave no trace.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .disk import Buffer, Directory, Disk, File
from .real_disk import LOCK_NAME, RealFile, take_lock

BLOCK_BYTES = 4096
"""Bytes read at a time where not everything can be read."""
UNREADABLE = b"\xff"
"""Stands for bytes that cannot be read: no field of a record begins with it, and it is not space never written."""
BROKEN = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})
"""Errors of opening a file, or listing a directory, if the disk has lost where it is."""


class ReadOnlyFile(File):
    """A file of the directory, opened for reading. Changes of its size are kept in memory."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._kept_bytes = self._size_bytes = file.size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def pread(self, size_bytes: int, at: int) -> bytes:
        size_bytes = max(0, min(size_bytes, self._size_bytes - at))
        data = self._read_blocks(max(0, min(size_bytes, self._kept_bytes - at)), at)
        return data + bytes(size_bytes - len(data))

    def _read_blocks(self, size_bytes: int, at: int) -> bytes:
        """Read, and treat bytes that the disk does not return as damage, block by block."""
        try:
            return self._file.pread(size_bytes, at)
        except OSError:
            pieces: list[bytes] = []
            while size_bytes > 0:
                piece = min(size_bytes, BLOCK_BYTES - at % BLOCK_BYTES)
                try:
                    pieces.append(self._file.pread(piece, at))
                except OSError:
                    pieces.append(UNREADABLE * piece)
                size_bytes, at = size_bytes - piece, at + piece
            return b"".join(pieces)

    def data_end(self) -> int:
        return min(self._file.data_end(), self._kept_bytes)

    def forget_read(self, start: int) -> None:
        self._file.forget_read(start)

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        """Do nothing: recovery writes only what it has read."""

    def preallocate(self, size_bytes: int) -> None:
        self._size_bytes = max(self._size_bytes, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._size_bytes, self._kept_bytes = size_bytes, min(size_bytes, self._kept_bytes)

    def fdatasync(self) -> None:
        """Do nothing: nothing was written."""

    def close(self) -> None:
        self._file.close()


class NoFile(File):
    """A file that recovery would create. What is written to it is discarded."""

    size_bytes = 0

    def pread(self, size_bytes: int, at: int) -> bytes:
        return b""

    def data_end(self) -> int:
        return self.size_bytes

    def forget_read(self, start: int) -> None: ...
    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None: ...
    def preallocate(self, size_bytes: int) -> None: ...
    def truncate(self, size_bytes: int) -> None: ...
    def fdatasync(self) -> None: ...
    def close(self) -> None: ...


class BrokenFile(NoFile):
    """A file of which the disk returns nothing: all of it is damage."""

    def __init__(self, path: Path) -> None:
        self.size_bytes = BLOCK_BYTES
        with suppress(OSError):  # Not even its size is known.
            self.size_bytes = path.stat().st_size

    def pread(self, size_bytes: int, at: int) -> bytes:
        return UNREADABLE * size_bytes


class ReadOnlyDirectory(Directory):
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._real_names: dict[str, str | None] | None = None

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def _names(self) -> dict[str, str | None]:
        """The real name behind each name; None for a file that was created here."""
        if self._real_names is None:
            self._real_names = {name: name for name in self._listed()}
        return self._real_names

    def _listed(self) -> list[str]:
        return os.listdir(self._path)

    def names(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str) -> File:
        if name in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        self._names[name] = None
        return NoFile()

    def open(self, name: str) -> File:
        real = self._names[self._existing(name)]
        if real is None:
            return NoFile()
        path = self._path / real
        try:
            # Without O_NONBLOCK, opening a FIFO would wait for somebody who writes to it.
            return ReadOnlyFile(RealFile(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)))
        except OSError as error:
            if error.errno not in BROKEN:
                raise
            return ReadOnlyFile(BrokenFile(path))

    def rename(self, old: str, new: str) -> None:
        self._names[new] = self._names.pop(self._existing(old))

    def unlink(self, name: str) -> None:
        del self._names[self._existing(name)]

    def _existing(self, name: str) -> str:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return name

    def sync_directory(self) -> None:
        """Do nothing: nothing was written."""

    def directory(self, name: str) -> ReadOnlyFolder:
        return ReadOnlyFolder(self._path / name)

    def make_directory(self, name: str) -> None:
        self._names.setdefault(name)

    def remove_directory(self, name: str) -> None:
        del self._names[self._existing(name)]


class ReadOnlyFolder(ReadOnlyDirectory):
    """A directory within another one. If the disk cannot list it, it counts as empty, and is `broken`."""

    broken = False

    def _listed(self) -> list[str]:
        try:
            return super()._listed()
        except OSError as error:
            if error.errno not in BROKEN:
                raise
            self.broken = True
            return []


class ReadOnlyDisk(ReadOnlyDirectory, Disk):
    """The directory `path`, which must exist.

    Args:
        unlocked: read it even while a broker has it open.
    """

    def __init__(self, path: str | Path, *, unlocked: bool = False) -> None:
        super().__init__(path)
        self._unlocked = unlocked
        self._lock: int | None = None

    def lock(self) -> None:
        """Keep brokers out, but not other readers. A directory without a lock file has no broker."""
        if self._unlocked or LOCK_NAME not in self._names:
            return
        self._lock = take_lock(self._path, os.O_RDONLY, fcntl.LOCK_SH)

    def free_bytes(self) -> int:
        return 0

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
