"""Files that are replaced by new versions: written beside the old one, synced, then renamed over it.

In three steps, so that whoever replaces many files can sync them all, and then rename them all. On a full disk a new
version that could not be finished is kept: the next attempt has its space. `replace_file` takes all steps for one file,
and keeps none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing

from .disk import NEW, Buffer, Directory, set_aside

logger = logging.getLogger("durable.log")
ASIDE = ".aside"
"""Suffix for what is not ours and has the name of something of ours."""


def replace_file(folder: Directory, name: str, data: bytes) -> None:
    """Replace a file's contents durably. At any time, also after a crash, it has either the old or the new ones.

    It always begins with a new file, so that mode and owner are ours.
    """
    try:
        try:
            folder.unlink(name + NEW)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            make_way(folder, name + NEW)
        write_new(folder, name, [data])
        sync_new(folder, name)
        replace(folder, name)
        folder.sync_directory()
    except OSError as error:  # The original error does not name the file.
        raise OSError(error.errno, error.strerror, f"{folder.path}/{name}") from error


def write_new(folder: Directory, name: str, pieces: Sequence[Buffer]) -> None:
    """Write the new version of the file `name`."""
    size_bytes, new = sum(map(len, pieces)), name + NEW
    try:
        opened = folder.create(new)
    except FileExistsError:  # Left by a failed attempt; on a full disk it has the space.
        try:
            opened = folder.open(new)
        except IsADirectoryError:
            make_way(folder, new)
            opened = folder.create(new)
    with closing(opened):
        if opened.size_bytes > size_bytes:
            opened.truncate(size_bytes)
        opened.pwritev(pieces, 0)


def sync_new(folder: Directory, name: str) -> None:
    """Put the new version on stable storage."""
    with closing(folder.open(name + NEW)) as opened:
        opened.fdatasync()


def replace(folder: Directory, name: str) -> None:
    """Replace the file by its new version. The caller syncs the directory."""
    try:
        folder.rename(name + NEW, name)
    except IsADirectoryError:
        make_way(folder, name)
        folder.rename(name + NEW, name)


def make_way(folder: Directory, name: str) -> None:
    """Set aside what has the name of something of ours and is not: a directory instead of a file, or the other way round."""
    aside = set_aside(folder, name, name + ASIDE)
    logger.warning(
        "renamed %s/%s to %s: it does not belong to this broker", folder.path, name, aside
    )
