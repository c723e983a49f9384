"""Copies of damaged bytes, kept in files beside the segments before anything is written over the damage."""

from __future__ import annotations

from contextlib import closing

from .disk import NO_SPACE, Disk, File, name_variants
from .header import damaged_name
from .scan import WINDOW_BYTES


def save_copy(disk: Disk, number: int, file: File, at: int, end: int) -> str | None:
    """Return the name of a file with a copy of bytes [at, end) of segment `number`, made unless there is one; None if
    they are zeros, or there is no room. Copies of what was cut there earlier, and of attempts that crashed, stay as
    they are."""
    names, copy = disk.names(), None
    for name in name_variants(damaged_name(number, at)):
        if name not in names:
            break
        if _is_copy(disk, name, file, at, end):
            return name
    try:
        for start in range(at, end, WINDOW_BYTES):
            data = file.pread(min(WINDOW_BYTES, end - start), start)
            if data != bytes(len(data)):
                copy = copy or disk.create(name)
                copy.pwritev([data], start - at)
        if copy is not None:
            copy.fdatasync()
            disk.sync_directory()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        if copy is not None:
            disk.unlink(name)
        return None
    return None if copy is None else name


def _is_copy(disk: Disk, name: str, file: File, at: int, end: int) -> bool:
    """Return whether the file `name` is a copy of bytes [at, end) of `file`; it may lack zeros at its end."""
    with closing(disk.open(name)) as copy:
        return copy.size_bytes <= end - at and all(
            copy.pread(size, start - at).ljust(size, b"\0") == file.pread(size, start)
            for start in range(at, end, WINDOW_BYTES)
            for size in [min(WINDOW_BYTES, end - start)]
        )
