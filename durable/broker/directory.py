"""Where vhosts are on the disk: a directory each, named by the SHA-1 of the vhost's name.

DIR/vhosts/8843d7f92416211de9ebb963ff4ce28125932878/vhost      its name, as text
                                                   /deleted    the same, of one that is going
                                                   /log/       its log, see docs/log-format.md
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from ..errors import ForeignStore
from ..log.checkpoint import directory_name
from ..log.header import STORE_NAME
from ..log.real_disk import RealDirectory

logger = logging.getLogger("durable")
DEFAULT_VHOST = "/"
NAME_FILE, GOING_FILE = "vhost", "deleted"
LOST = "lost+found"
"""File systems have it in their root."""


def vhost_path(data: Path, name: str) -> Path:
    return data / "vhosts" / directory_name(name)


def make_vhost(data: Path, name: str) -> Path:
    """The directory of its log, made if it is not there; there after a power cut, too.

    One whose name is lost or damaged has it again, with all that was in it.
    """
    path = vhost_path(data, name)
    _finish_removal(path)
    log = path / "log"
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = path / NAME_FILE
    if _name(path) != name:
        new = path / f"{NAME_FILE}.new"
        with new.open("w", encoding="utf-8") as out:
            out.write(name)
            out.flush()
            os.fsync(out.fileno())
        new.rename(file)
    for directory in (path, path.parent, data):
        _sync(directory)  # Also what is there: it may be so in the cache only, after a SIGKILL.
    return log


def remove_vhost(data: Path, name: str) -> None:
    """Its name goes first: what is left of it after a power cut is none any more, nor part of a new one."""
    path = vhost_path(data, name)
    if (path / NAME_FILE).exists():
        (path / NAME_FILE).rename(path / GOING_FILE)
        _sync(path)
    _finish_removal(path)


def finish_removals(data: Path) -> None:
    """What a power cut has left of vhosts that were being deleted."""
    for path in (data / "vhosts").glob("*"):
        _finish_removal(path)


def is_going(path: Path) -> bool:
    """Whether the vhost in there has been deleted; a broker that was killed meanwhile has left some of it."""
    return (path / GOING_FILE).exists()


def _finish_removal(path: Path) -> None:
    if is_going(path):
        if (path / "log").exists():
            shutil.rmtree(path / "log")
            _sync(path)
        shutil.rmtree(path)
        _sync(path.parent)


def check_ours(data: Path) -> None:
    """A broker makes itself at home in an empty directory or in its own, nowhere else.

    Raises:
        ForeignStore: something else is in there.
    """
    if data.exists() and not data.is_dir():
        raise ForeignStore(str(data), "it is no directory")
    if not data.is_dir() or (data / "vhosts").is_dir():
        return
    strange = sorted(
        one.name for one in data.iterdir() if not one.name.startswith(".") and one.name != LOST
    )
    if strange:
        raise ForeignStore(str(data), f"it holds {', '.join(strange[:5])}")


def vhosts(data: Path) -> list[str]:
    """Names of all there are; those whose making was cut off, or whose name is damaged, are left out."""
    names: list[str] = []
    for path in sorted((data / "vhosts").glob("*")):
        name = _name(path)
        if directory_name(name) == path.name:
            names.append(name)
        elif (path / "log" / STORE_NAME).exists():
            logger.error(
                "the vhost in %s is left out: its name says %r, which belongs elsewhere; declare a "
                "vhost of its name, and it is back", path, name,
            )  # fmt: skip
    return names


def _name(path: Path) -> str:
    """What it says; nothing where it does not."""
    try:
        return (path / NAME_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sync(path: Path) -> None:
    RealDirectory(path).sync_directory()
