"""Directories in memory that know which of their contents would survive a power cut.

A file has its bytes as programs see them and as they are on stable storage; sectors in which these may differ are
dirty. Changes of names since the last `sync_directory` are in a journal, for files and directories alike. A power
cut keeps any subset of all this, chosen by a random source that the caller passes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from ..errors import StoreInUse
from .disk import Buffer, Directory, Disk, File

SECTOR_BYTES = 512
CAPACITY_BYTES = 1 << 30
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Inode:
    """The contents of a file, whatever its names."""

    seen: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Numbers of the sectors of `seen` that may differ from `stable`."""

    def write(self, data: Buffer, at: int) -> None:
        if at > len(self.seen):
            self.resize(at)
        self.seen[at : at + len(data)] = data
        self.dirty.update(range(at // SECTOR_BYTES, -(-(at + len(data)) // SECTOR_BYTES)))

    def resize(self, size_bytes: int) -> None:
        old = len(self.seen)
        if size_bytes < old:
            del self.seen[size_bytes:]
        else:
            self.seen += bytes(size_bytes - old)
        first = min(old, size_bytes) // SECTOR_BYTES
        self.dirty.update(range(first, -(-max(old, size_bytes) // SECTOR_BYTES)))

    def sync(self) -> None:
        self.stable[len(self.seen) :] = bytes(max(0, len(self.seen) - len(self.stable)))
        for sector in self.dirty:
            part = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
            self.stable[part] = self.seen[part]
        self.dirty.clear()

    def forget_dirty(self) -> None:
        """Do what a kernel does if a write fails: pages count as clean, though stable storage has the old bytes."""
        self.dirty.clear()

    def after_power_cut(self, random: Random, keep: float) -> Inode:
        """Return what a power cut leaves: each dirty sector is new with probability `keep`, and so is the size."""
        size = len(self.seen) if random.random() < keep else len(self.stable)
        left = bytearray(max(size, len(self.stable)))
        left[: len(self.stable)] = self.stable
        for sector in sorted(self.dirty):
            if random.random() < keep:
                part = slice(sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, len(left)))
                new = self.seen[part]
                left[part] = new + bytes(max(0, part.stop - part.start - len(new)))
        del left[size:]
        return Inode(left, bytearray(left))


class Names(Generic[T]):
    """What names stand for now, and what they may stand for after a power cut."""

    def __init__(self) -> None:
        self.seen: dict[str, T] = {}
        self._stable: dict[str, T] = {}
        self._journal: list[tuple[str | None, str | None, T]] = []
        """Old name, new name and object of each change since the last sync."""

    def change(self, old: str | None, new: str | None, one: T) -> None:
        self._journal.append((old, new, one))
        _apply(self.seen, old, new, one)

    def sync(self) -> None:
        self._stable = dict(self.seen)
        self._journal.clear()

    def after_power_cut(self, random: Random, keep: float) -> dict[str, T]:
        names = dict(self._stable)
        for old, new, one in self._journal:
            if random.random() < keep:
                _apply(names, old, new, one)
        return dict(sorted(names.items()))


class Folder:
    """The contents of a directory, whatever its name."""

    def __init__(self) -> None:
        self.files: Names[Inode] = Names()
        self.folders: Names[Folder] = Names()

    @property
    def seen(self) -> dict[str, Inode]:
        return self.files.seen

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.seen) for inode in self.seen.values()) + sum(
            folder.used_bytes for folder in self.folders.seen.values()
        )

    def sync_names(self) -> None:
        self.files.sync()
        self.folders.sync()

    def fill_after_power_cut(self, left: Folder, random: Random, keep: float) -> None:
        """Fill `left` with what a power cut may leave of this folder."""
        files = self.files.after_power_cut(random, keep)
        cut = {id(inode): inode.after_power_cut(random, keep) for inode in files.values()}
        left.seen.update((name, cut[id(inode)]) for name, inode in files.items())
        for name, folder in self.folders.after_power_cut(random, keep).items():
            left.folders.seen[name] = Folder()
            folder.fill_after_power_cut(left.folders.seen[name], random, keep)
        left.sync_names()

    def copy_to(self, left: Folder) -> None:
        for name, inode in self.seen.items():
            left.seen[name] = Inode(bytearray(inode.seen), bytearray(inode.seen))
        for name, folder in self.folders.seen.items():
            left.folders.seen[name] = Folder()
            folder.copy_to(left.folders.seen[name])
        left.sync_names()


class Volume(Folder):
    """The contents of a disk. It outlives the `MemoryDisk`s through which programs see it."""

    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        """A test may change it at any time."""
        self.locked = False

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes)

    def after_power_cut(self, random: Random) -> Volume:
        """Return what the machine may find at its next start."""
        left = Volume(capacity_bytes=self.capacity_bytes)
        self.fill_after_power_cut(left, random, random.choice((0.0, 0.1, 0.5, 0.9, 1.0)))
        return left

    def copy(self) -> Volume:
        """Return the same contents, all of them on stable storage."""
        left = Volume(capacity_bytes=self.capacity_bytes)
        self.copy_to(left)
        return left

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit of the medium."""
        for data in (self.seen[name].seen, self.seen[name].stable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def cut(self, name: str, size_bytes: int) -> None:
        """Cut the file off at this size."""
        for data in (self.seen[name].seen, self.seen[name].stable):
            del data[size_bytes:]


def _apply(names: dict[str, T], old: str | None, new: str | None, one: T) -> None:
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = one


class MemoryFile(File):
    def __init__(self, volume: Volume, inode: Inode) -> None:
        self._volume, self.inode = volume, inode

    @property
    def size_bytes(self) -> int:
        return len(self.inode.seen)

    def pread(self, size_bytes: int, at: int) -> bytes:
        return bytes(self.inode.seen[at : at + size_bytes])

    def data_end(self) -> int:
        used = len(self.inode.seen.rstrip(b"\0"))
        return min(-(-used // SECTOR_BYTES) * SECTOR_BYTES, self.size_bytes)

    def forget_read(self, start: int) -> None: ...

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        data = b"".join(pieces)
        room = max(0, self.size_bytes - at) + self._volume.free_bytes
        self.inode.write(data[:room], at)
        if len(data) > room:
            raise OSError(errno.ENOSPC, "no space left on the memory disk")

    def preallocate(self, size_bytes: int) -> None:
        if size_bytes - self.size_bytes > self._volume.free_bytes:
            raise OSError(errno.ENOSPC, "no space left on the memory disk")
        if size_bytes > self.size_bytes:
            self.inode.resize(size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self.inode.resize(size_bytes)

    def fdatasync(self) -> None:
        self.inode.sync()

    def close(self) -> None:
        pass


class MemoryDirectory(Directory):
    def __init__(self, volume: Volume, parents: tuple[str, ...] = ()) -> None:
        self.volume, self._parents = volume, parents

    @property
    def path(self) -> str:
        return "/".join(("memory", *self._parents))

    @property
    def _folder(self) -> Folder:
        folder: Folder = self.volume
        for name in self._parents:
            folder = _find(folder.folders.seen, name)
        return folder

    def names(self) -> list[str]:
        folder = self._folder
        return sorted((*folder.seen, *folder.folders.seen))

    def create(self, name: str) -> File:
        folder, inode = self._folder, Inode()
        _refuse_existing(folder, name)
        folder.files.change(None, name, inode)
        return MemoryFile(self.volume, inode)

    def open(self, name: str) -> File:
        return MemoryFile(self.volume, _find(self._folder.seen, name))

    def rename(self, old: str, new: str) -> None:
        files = self._folder.files
        files.change(old, new, _find(files.seen, old))

    def unlink(self, name: str) -> None:
        files = self._folder.files
        files.change(name, None, _find(files.seen, name))

    def sync_directory(self) -> None:
        self._folder.sync_names()

    def directory(self, name: str) -> MemoryDirectory:
        return MemoryDirectory(self.volume, (*self._parents, name))

    def make_directory(self, name: str) -> None:
        folder = self._folder
        _refuse_existing(folder, name)
        folder.folders.change(None, name, Folder())

    def remove_directory(self, name: str) -> None:
        folders = self._folder.folders
        if self.directory(name).names():
            raise OSError(errno.ENOTEMPTY, "not empty", name)
        folders.change(name, None, _find(folders.seen, name))


class MemoryDisk(MemoryDirectory, Disk):
    """One process's view of a volume."""

    def __init__(self, volume: Volume | None = None) -> None:
        super().__init__(volume or Volume())
        self._holds_lock = False

    def lock(self) -> None:
        if self.volume.locked:
            raise StoreInUse(self.path)
        self.volume.locked = self._holds_lock = True

    def free_bytes(self) -> int:
        return self.volume.free_bytes

    def close(self) -> None:
        if self._holds_lock:
            self.volume.locked = self._holds_lock = False


def _find(names: dict[str, T], name: str) -> T:
    try:
        return names[name]
    except KeyError:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", name) from None


def _refuse_existing(folder: Folder, name: str) -> None:
    if name in folder.seen or name in folder.folders.seen:
        raise FileExistsError(errno.EEXIST, "exists", name)
