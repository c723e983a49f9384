"""The door to the file system: all that the log needs of a directory, and nothing else.

Production: `real_disk`. Tests: `memory_disk`, which knows what a power cut leaves, and
`faulty_disk`, which cuts the power, fills up, fails and hangs.

Every call may raise OSError. What is written is on stable storage after `fdatasync` of the file; that
a name exists, has changed or is gone, after `sync_directory`. Until then a power cut leaves any part.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Protocol

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of writing that go away when somebody frees space."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What files are opened and read with has been used up, as by connections."""

ZEROS_BYTES = 1 << 20
"""Written at a time."""
NEW = ".new"
"""Ending of files that are not complete yet."""
Buffer = bytes | memoryview


class File(Protocol):
    """An open file. Its calls may come from several threads; closing waits for nobody."""

    @property
    def size_bytes(self) -> int: ...

    def pread(self, size_bytes: int, at: int) -> bytes:
        """Less than asked for only at the end of the file."""

    def data_end(self) -> int:
        """From this byte on there are only zeros, allocated and never written.

        Not the least such byte: a disk that does not know says the size.
        """

    def forget_read(self, start: int) -> None:
        """What was read from this byte on need not stay in memory: zeros that do may count as written."""

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        """All of it, or OSError and some of it."""

    def preallocate(self, size_bytes: int) -> None:
        """Grow to this size with zeros; writing there cannot fail for lack of space afterwards."""

    def truncate(self, size_bytes: int) -> None: ...
    def fileno(self) -> int:
        """As the kernel knows it. Raises OSError: it does not."""
        raise OSError(errno.EBADF, "not a file of the kernel's")

    def fdatasync(self) -> None:
        """Contents and size are on stable storage, and so is what other files' calls wrote to it."""

    def close(self) -> None: ...


def write_zeros(file: File, start: int, end: int) -> None:
    """Over bytes [start, end), which stay allocated. Raises OSError, and some of them are written."""
    for at in range(start, end, ZEROS_BYTES):
        file.pwritev([bytes(min(ZEROS_BYTES, end - at))], at)


class Directory(Protocol):
    """One directory; names have no slash in them."""

    @property
    def path(self) -> str:
        """For people to read."""

    def names(self) -> list[str]:
        """Everything in the directory, sorted."""

    def create(self, name: str) -> File:
        """An empty file that was not there before."""

    def open(self, name: str) -> File: ...
    def rename(self, old: str, new: str) -> None:
        """`new` is replaced when it is there."""

    def unlink(self, name: str) -> None: ...
    def sync_directory(self) -> None:
        """Of the names in it, not of what is in directories below."""

    def directory(self, name: str) -> Directory:
        """The one below of this name; its calls raise FileNotFoundError while it is not there."""

    def make_directory(self, name: str) -> None: ...
    def remove_directory(self, name: str) -> None:
        """An empty one."""


def read_front(directory: Directory, name: str, size_bytes: int) -> bytes:
    """So many of the first bytes of this file, or all there are."""
    with closing(directory.open(name)) as file:
        return file.pread(size_bytes, 0)


def replace_file(directory: Directory, name: str, data: bytes) -> None:
    """Durable when it returns: the file of this name holds these bytes, or what it held before."""
    try:
        with suppress(FileNotFoundError):
            directory.unlink(name + NEW)
        with closing(directory.create(name + NEW)) as file:
            file.pwritev([data], 0)
            file.fdatasync()
        directory.rename(name + NEW, name)
        directory.sync_directory()
    except OSError as error:  # Of which file, nobody would know.
        raise OSError(error.errno, error.strerror, f"{directory.path}/{name}") from error


class Syncer(Protocol):
    """Syncs files of one disk, one at a time, and no thread waits for it."""

    @property
    def told(self) -> int:
        """An eventfd, readable when the sync under way has ended."""

    def begin(self, file: File) -> bool:
        """As its `fdatasync`; False: that cannot be done so, and nothing has begun."""

    def end(self) -> None:
        """Of one that has ended: to be called once. Raises OSError, as `fdatasync`."""

    def outlast(self) -> None:
        """Block until the one under way has ended, whether it failed or not. From any thread. Raises OSError: nobody knows."""

    def close(self) -> None:
        """None is under way. From any thread; takes a while, and nobody else's."""


class Disk(Directory, Protocol):
    """The directory of a store."""

    def syncer(self) -> Syncer | None:
        """A new one; None: whoever syncs a file of this disk waits for it."""
        return None

    def lock(self) -> None:
        """Keep everybody else out until `close`, or until this process ends.

        Raises:
            StoreInUse: somebody else has it.
            StoreFailed: it cannot be locked.
        """

    def free_bytes(self) -> int:
        """What files may still grow by."""

    def close(self) -> None:
        """Let others in."""
