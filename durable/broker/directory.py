"""Where vhosts are on the disk: one directory each, named by the SHA-1 of the vhost's name.

DIR/vhosts/8843d7f92416211de9ebb963ff4ce28125932878/vhost      the vhost's name, as text
                                                   /deleted    the same, if the vhost is being deleted
                                                   /log/       its log, see docs/log-format.md
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from ..definition_checks import NAME_BYTES_MAX
from ..errors import ForeignStore, StoreFailed
from ..log.checkpoint import directory_name
from ..log.disk import SCARCE, Directory, read_front
from ..log.header import STORE_NAME
from ..log.new_versions import replace_file
from ..log.read_only_disk import ReadOnlyDisk
from ..log.real_disk import RealDirectory

logger = logging.getLogger("durable")
DEFAULT_VHOST = "/"
VHOSTS_FOLDER, LOG_FOLDER = "vhosts", "log"
NAME_FILE, DELETED_FILE = "vhost", "deleted"
LOST_AND_FOUND = "lost+found"
"""File systems have this in their root directory."""


def vhost_path(data: Path, name: str) -> Path:
    return data / VHOSTS_FOLDER / directory_name(name)


def make_vhost(data: Path, name: str) -> Path:
    """Return the directory of the vhost's log, made if it is not there. It survives a power cut.

    A vhost whose name file is lost or damaged gets its name back, with everything stored in it.
    """
    path = make_folders(data, name)
    write_vhost_name(RealDirectory(data), name)
    return path


def make_folders(data: Path, name: str) -> Path:
    """Do what `make_vhost` does, but leave the name to `write_vhost_name`, which may wait until the log is locked."""
    path = vhost_path(data, name)
    _finish_removal(RealDirectory(data / VHOSTS_FOLDER), path.name)
    made = [one for one in data.parents if not one.exists()]
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_folders(RealDirectory(data), name)
    for one in (data, *made):
        with suppress(PermissionError):  # A directory that we may not read was not made here.
            _sync(one.parent)
    return path / LOG_FOLDER


def write_vhost_name(data: Directory, name: str) -> None:
    """Do what `make_vhost` does, in a directory that exists."""
    parent, folder = _make_folders(data, name)
    if _read_name(folder) == name:
        # After a SIGKILL the file may be in the cache only, and so may the directories above.
        folder.sync_directory()
    else:
        replace_file(folder, NAME_FILE, name.encode())
    parent.sync_directory()
    data.sync_directory()


def _make_folders(data: Directory, name: str) -> tuple[Directory, Directory]:
    """Return the directory of all vhosts, and that of this one."""
    parent = _make_directory(data, VHOSTS_FOLDER)
    folder = _make_directory(parent, directory_name(name))
    _make_directory(folder, LOG_FOLDER)
    return parent, folder


def _make_directory(parent: Directory, name: str) -> Directory:
    if name not in parent.names():
        # Another broker may be starting here, too; the lock decides between us.
        with suppress(FileExistsError):
            parent.make_directory(name)
    return parent.directory(name)


def remove_vhost(data: Directory, name: str) -> None:
    """Delete a vhost. Its name file is renamed first: what a power cut leaves of the vhost then is no vhost
    any more, and never becomes part of a new one. A vhost without a name file, because its making was cut
    off, is deleted as it is.

    Raises:
        StoreFailed: the vhost still has its name file.
        OSError: the name file is gone, but not all other files are; or there are no descriptors, and
            nothing is gone.
    """
    parent, digest = data.directory(VHOSTS_FOLDER), directory_name(name)
    folder = parent.directory(digest)
    try:
        names = _names(folder)
        if NAME_FILE in names:
            folder.rename(NAME_FILE, DELETED_FILE)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        why = f"vhost {name!r} was not deleted: {error}"
        raise StoreFailed(why, store_continues=True) from error
    if NAME_FILE in names:
        folder.sync_directory()
    elif DELETED_FILE not in names and digest in _names(parent):
        _remove(parent, digest)
    _finish_removal(parent, digest)


def finish_removals(data: Directory) -> None:
    """Remove what a power cut has left of vhosts that were being deleted."""
    parent = data.directory(VHOSTS_FOLDER)
    for digest in _names(parent):
        _finish_removal(parent, digest)


def is_deleted(path: Path) -> bool:
    """Whether the vhost in this directory has been deleted; a killed broker may have left some of its files."""
    return (path / DELETED_FILE).exists()


def _finish_removal(parent: Directory, digest: str) -> None:
    folder = parent.directory(digest)
    if DELETED_FILE in _names(folder):
        if LOG_FOLDER in folder.names():
            _remove(folder, LOG_FOLDER)
            folder.sync_directory()
        _remove(parent, digest)


def _remove(parent: Directory, name: str) -> None:
    """Remove a file, or a directory with everything in it. Symbolic links are removed, not followed."""
    try:
        parent.unlink(name)
    except OSError:  # A directory; for any other error, the calls below raise it again.
        child = parent.directory(name)
        for inner in child.names():
            _remove(child, inner)
        parent.remove_directory(name)


def _names(folder: Directory) -> list[str]:
    """The names in a directory; empty if there is no such directory."""
    try:
        return folder.names()
    except (FileNotFoundError, NotADirectoryError):
        return []


def check_usable(data: Path) -> None:
    """Check that a broker may use this directory: it has to be empty, or a broker's own.

    Raises:
        ForeignStore: something else is in there.
    """
    if data.exists() and not data.is_dir():
        raise ForeignStore(str(data), "it is not a directory")
    if not data.is_dir():
        return
    foreign = sorted(
        one.name
        for one in data.iterdir()
        if not one.name.startswith(".") and one.name != LOST_AND_FOUND
    )
    # Looked for after the others: another broker may be making it at this moment.
    if foreign and not (data / VHOSTS_FOLDER).is_dir():
        raise ForeignStore(str(data), f"it contains {', '.join(foreign[:5])}")


def check_unused(data: Path) -> None:
    """Raises StoreInUse if another broker has the directory open."""
    log = vhost_path(data, DEFAULT_VHOST) / LOG_FOLDER
    if log.is_dir():
        disk = ReadOnlyDisk(log)
        disk.lock()
        disk.close()


def is_vhost(path: Path) -> bool:
    """Whether there is a vhost: one that has not been deleted, and whose making was not cut off before
    anything was stored in it."""
    log = path / LOG_FOLDER
    if not log.is_dir() or is_deleted(path):
        return False
    made = (path / NAME_FILE, log / STORE_NAME)
    return any(one.exists() for one in made) or has_segments(log)


def has_segments(log: Path) -> bool:
    return any(log.glob("msgs.*"))


def vhost_names(data: Path) -> list[str]:
    """Return the names of all vhosts, without those whose making was cut off or whose name is damaged."""
    names: list[str] = []
    for path in sorted((data / VHOSTS_FOLDER).glob("*")):
        exists = is_vhost(path)  # Before the name is read: another broker may be making the vhost.
        name = _read_name(RealDirectory(path))
        if exists and path.name == directory_name(DEFAULT_VHOST):
            name = DEFAULT_VHOST  # It is served, whether or not the disk gives its name this time.
        if directory_name(name) == path.name:
            names.append(name)
        elif exists:
            logger.error(
                "the vhost in %s is not served: its name file says %r, which belongs to another directory; "
                "to get it back, declare a vhost of its former name, or copy it under another name "
                "with `mesh-broker salvage`", path, name,
            )  # fmt: skip
    return names


def _read_name(folder: Directory) -> str:
    """The contents of the name file; empty if it cannot be read."""
    try:
        return read_front(folder, NAME_FILE, NAME_BYTES_MAX + 1).decode(errors="replace")
    except OSError:
        return ""


def _sync(path: Path) -> None:
    RealDirectory(path).sync_directory()
