"""Where vhosts are on the disk: a directory each, named by the SHA-1 of the vhost's name.

DIR/vhosts/8843d7f92416211de9ebb963ff4ce28125932878/vhost      its name, as text
                                                   /deleted    the same, of one that is going
                                                   /log/       its log, see docs/log-format.md
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from ..definition_checks import NAME_BYTES_MAX
from ..errors import ForeignStore, StoreFailed
from ..log.checkpoint import directory_name
from ..log.disk import SCARCE, Directory, read_front, replace_file
from ..log.header import STORE_NAME
from ..log.read_only_disk import ReadOnlyDisk
from ..log.real_disk import RealDirectory

logger = logging.getLogger("durable")
DEFAULT_VHOST = "/"
FOLDER, LOG_FOLDER = "vhosts", "log"
NAME_FILE, GOING_FILE = "vhost", "deleted"
LOST = "lost+found"
"""File systems have it in their root."""


def vhost_path(data: Path, name: str) -> Path:
    return data / FOLDER / directory_name(name)


def make_vhost(data: Path, name: str) -> Path:
    """The directory of its log, made if it is not there; there after a power cut, too.

    One whose name is lost or damaged has it again, with all that was in it.
    """
    path = vhost_path(data, name)
    _finish_removal(RealDirectory(data / FOLDER), path.name)
    made = [one for one in data.parents if not one.exists()]
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_vhost(RealDirectory(data), name)
    for one in (data, *made):
        with suppress(PermissionError):  # Who may not read where it stands has not made it.
            _sync(one.parent)
    return path / LOG_FOLDER


def write_vhost(data: Directory, name: str) -> None:
    """What `make_vhost` does in a directory that is there."""
    above = _made(data, FOLDER)
    folder = _made(above, directory_name(name))
    _made(folder, LOG_FOLDER)
    if _name(folder) == name:
        folder.sync_directory()  # It may be so in the cache only, after a SIGKILL; as may those above.
    else:
        replace_file(folder, NAME_FILE, name.encode())
    above.sync_directory()
    data.sync_directory()


def _made(above: Directory, name: str) -> Directory:
    if name not in above.names():
        above.make_directory(name)
    return above.directory(name)


def remove_vhost(data: Directory, name: str) -> None:
    """Its name goes first: what is left of it after a power cut is none any more, nor part of a new one.
    What has no name, as its making was cut off, goes as it is.

    Raises:
        StoreFailed: it has its name still.
        OSError: that is gone, and not all of its files are; or there are no descriptors, and nothing is.
    """
    above, digest = data.directory(FOLDER), directory_name(name)
    folder = above.directory(digest)
    try:
        names = _names(folder)
        if NAME_FILE in names:
            folder.rename(NAME_FILE, GOING_FILE)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        raise StoreFailed(f"vhost {name!r} is not deleted: {error}") from error
    if NAME_FILE in names:
        folder.sync_directory()
    elif GOING_FILE not in names and digest in _names(above):
        _remove(above, digest)
    _finish_removal(above, digest)


def finish_removals(data: Directory) -> None:
    """What a power cut has left of vhosts that were being deleted."""
    above = data.directory(FOLDER)
    for digest in _names(above):
        _finish_removal(above, digest)


def is_going(path: Path) -> bool:
    """Whether the vhost in there has been deleted; a broker that was killed meanwhile has left some of it."""
    return (path / GOING_FILE).exists()


def _finish_removal(above: Directory, digest: str) -> None:
    folder = above.directory(digest)
    if GOING_FILE in _names(folder):
        if LOG_FOLDER in folder.names():
            _remove(folder, LOG_FOLDER)
            folder.sync_directory()
        _remove(above, digest)


def _remove(above: Directory, name: str) -> None:
    """With all that is in it; what a symbolic link leads to stays."""
    try:
        above.unlink(name)
    except OSError:  # A directory, or it says so again.
        below = above.directory(name)
        for inner in below.names():
            _remove(below, inner)
        above.remove_directory(name)


def _names(folder: Directory) -> list[str]:
    """Nothing where there is none."""
    try:
        return folder.names()
    except (FileNotFoundError, NotADirectoryError):
        return []


def check_ours(data: Path) -> None:
    """A broker makes itself at home in an empty directory or in its own, nowhere else.

    Raises:
        ForeignStore: something else is in there.
    """
    if data.exists() and not data.is_dir():
        raise ForeignStore(str(data), "it is no directory")
    if not data.is_dir() or (data / FOLDER).is_dir():
        return
    strange = sorted(
        one.name for one in data.iterdir() if not one.name.startswith(".") and one.name != LOST
    )
    if strange:
        raise ForeignStore(str(data), f"it holds {', '.join(strange[:5])}")


def check_unused(data: Path) -> None:
    """Raises StoreInUse: another broker has it open."""
    log = vhost_path(data, DEFAULT_VHOST) / LOG_FOLDER
    if log.is_dir():
        disk = ReadOnlyDisk(log)
        disk.lock()
        disk.close()


def is_vhost(path: Path) -> bool:
    """Neither one that was deleted, nor one whose making was cut off before anything was in it."""
    log = path / LOG_FOLDER
    if not log.is_dir() or is_going(path):
        return False
    made = (path / NAME_FILE, log / STORE_NAME)
    return any(one.exists() for one in made) or has_segments(log)


def has_segments(log: Path) -> bool:
    return any(log.glob("msgs.*"))


def vhosts(data: Path) -> list[str]:
    """Names of all there are; those whose making was cut off, or whose name is damaged, are left out."""
    names: list[str] = []
    for path in sorted((data / FOLDER).glob("*")):
        there = is_vhost(path)  # First: a broker beside us may be making it.
        name = _name(RealDirectory(path))
        if directory_name(name) == path.name:
            names.append(name)
        elif there:
            logger.error(
                "the vhost in %s is left out: its name says %r, which belongs elsewhere; declare a "
                "vhost of its name, and it is back; or have `mesh-broker salvage` copy it, under "
                "another name", path, name,
            )  # fmt: skip
    return names


def _name(folder: Directory) -> str:
    """What it says; nothing where it does not."""
    try:
        return read_front(folder, NAME_FILE, NAME_BYTES_MAX + 1).decode(errors="replace")
    except OSError:
        return ""


def _sync(path: Path) -> None:
    RealDirectory(path).sync_directory()
