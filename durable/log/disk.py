"""The door to the file system: all that the log needs of a directory, and nothing else.

In production: `real_disk`. In tests: `memory_disk`, which knows what a power cut leaves, and `faulty_disk`,
which cuts the power, fills up, fails and hangs.

Every call may raise OSError. The contents of a file are on stable storage after its `fdatasync`; new, changed and
removed names are after `sync_directory`. Until then a power cut may leave any part of the changes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Protocol

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of writing that no longer occur once somebody frees space."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors for a lack of what it takes to open or read a file: descriptors, which connections use up, or memory."""

ZEROS_BYTES = 1 << 20
"""Zeros written at a time."""
NEW = ".new"
"""Suffix of files that are not complete yet."""
Buffer = bytes | memoryview


class File(Protocol):
    """An open file. Several threads may call it at once; `close` does not wait for their calls."""

    @property
    def size_bytes(self) -> int: ...

    def pread(self, size_bytes: int, at: int) -> bytes:
        """Return `size_bytes` from byte `at` on; fewer only at the end of the file."""

    def data_end(self) -> int:
        """Return a byte from which on there are only zeros, allocated and never written.

        It need not be the lowest such byte: a disk that cannot tell returns the file's size.
        """

    def forget_read(self, start: int) -> None:
        """Drop what was read from byte `start` on from the cache: cached zeros may count as written, see `data_end`."""

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        """Write all pieces, one after the other, from byte `at` on. If it raises OSError, some may be written."""

    def preallocate(self, size_bytes: int) -> None:
        """Grow to this size with zeros. Writing there cannot fail for lack of space afterwards."""

    def truncate(self, size_bytes: int) -> None: ...
    def fileno(self) -> int:
        """Return the kernel's descriptor. Raises OSError if there is none."""
        raise OSError(errno.EBADF, "not a file of the kernel's")

    def fdatasync(self) -> None:
        """Put contents and size on stable storage, including what was written through other open files."""

    def close(self) -> None: ...


def write_zeros(file: File, start: int, end: int) -> None:
    """Write zeros over bytes [start, end), which stay allocated. If it raises OSError, some may be written."""
    for at in range(start, end, ZEROS_BYTES):
        file.pwritev([bytes(min(ZEROS_BYTES, end - at))], at)


class Directory(Protocol):
    """One directory. Names contain no slash."""

    @property
    def path(self) -> str:
        """The path, to be shown to people."""

    def names(self) -> list[str]:
        """Return all names in the directory, sorted."""

    def create(self, name: str) -> File:
        """Create an empty file. Raises FileExistsError if the name is taken."""

    def open(self, name: str) -> File:
        """Open a file. Raises IsADirectoryError if it is a directory, or anything else that is not a regular file, such
        as a FIFO: whoever sets aside or passes over the one does so with the other."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file; an existing file `new` is replaced."""

    def unlink(self, name: str) -> None: ...
    def sync_directory(self) -> None:
        """Put the names in it on stable storage, not those in directories below."""

    def directory(self, name: str) -> Directory:
        """Return the directory below with this name; its calls raise FileNotFoundError while it does not exist."""

    def make_directory(self, name: str) -> None: ...
    def remove_directory(self, name: str) -> None:
        """Remove an empty directory."""


def read_front(directory: Directory, name: str, size_bytes: int) -> bytes:
    """Return the first `size_bytes` of this file, or all of a shorter one."""
    with closing(directory.open(name)) as file:
        return file.pread(size_bytes, 0)


def name_variants(name: str) -> Iterator[str]:
    """Yield the name, then NAME.2, NAME.3 and so on without end: the caller takes the first that is free."""
    yield name
    for again in count(2):
        yield f"{name}.{again}"


def set_aside(directory: Directory, name: str, aside: str) -> str:
    """Rename what has this name to `aside`, or a variant of it that is free: what was set aside earlier is the only
    copy. Return the new name."""
    names = directory.names()
    free = next(one for one in name_variants(aside) if one not in names)
    directory.rename(name, free)
    return free


class Syncer(Protocol):
    """Syncs the files of one disk, one at a time, without a thread that waits."""

    @property
    def eventfd(self) -> int:
        """An eventfd, which is readable when the current sync has ended."""

    def begin(self, file: File) -> bool:
        """Begin what the file's `fdatasync` does. Return False if that is impossible here: nothing has begun."""

    def end(self) -> None:
        """Finish a sync that has ended; to be called once for each. Raises OSError, as `fdatasync` does."""

    def wait(self) -> None:
        """Block until the current sync has ended, whether or not it failed. From any thread. Raises OSError if its end
        cannot be found out."""

    def close(self) -> None:
        """Close; no sync may be under way. From any thread: it takes a while, and holds up only that thread."""


class Disk(Directory, Protocol):
    """The directory of a store, which can be locked."""

    def syncer(self) -> Syncer | None:
        """Return a new syncer; None if files of this disk can only be synced by a thread that waits."""
        return None

    def lock(self) -> None:
        """Keep all others out until `close`, or until this process ends.

        Raises:
            StoreInUse: another process has the lock.
            StoreFailed: it cannot be locked.
        """

    def free_bytes(self) -> int:
        """Return by how much files may still grow."""

    def close(self) -> None:
        """Release the lock."""
