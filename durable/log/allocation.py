"""Files that are allocated on the disk before they are used, and the error if there is no space for something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import StoreFull
from .config import LogConfig
from .disk import NO_SPACE, Disk, File


class Allocator:
    """Allocates the files of one store."""

    def __init__(self, disk: Disk, config: LogConfig) -> None:
        self._disk, self._config = disk, config

    def allocate(self, name: str, size_bytes: int) -> File:
        """Return a new file of this size, on stable storage. If that fails, the file is removed, if possible."""
        try:
            file = self._disk.create(name)
        except FileExistsError:  # Left by an attempt that could not be undone.
            self._disk.unlink(name)
            file = self._disk.create(name)
        try:
            file.preallocate(size_bytes)
            file.fdatasync()
            self._disk.sync_directory()
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(name)
            raise
        return file

    @contextmanager
    def space_for(self, needed_bytes: int) -> Iterator[None]:
        """Turn an error of the block for lack of space into StoreFull."""
        try:
            yield
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise self.full_error(needed_bytes) from error

    def full_error(self, needed_bytes: int) -> StoreFull:
        """Return the error for something of `needed_bytes` for which there is no space now."""
        return self._config.full_error(needed_bytes, self._disk.free_bytes())
