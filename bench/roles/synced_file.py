"""A preallocated file, as a log's segments are; each write is on disk when it returns."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

FILE_BYTES = 16 << 20


class SyncedFile:
    """Records are written one after the other, and from the start again when the file is full; they are never read."""

    def __init__(self, directory: str) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (closed in __exit__)
        self._descriptor = self._file.fileno()
        self._offset = 0
        os.posix_fallocate(self._descriptor, 0, FILE_BYTES)
        os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._file.close()

    def write(self, record: bytes) -> None:
        """Write a record; return when it is on disk."""
        if self._offset + len(record) > FILE_BYTES:
            self._offset = 0
        os.pwrite(self._descriptor, record, self._offset)
        os.fdatasync(self._descriptor)
        self._offset += len(record)
