"""A directory in memory that knows what of it would survive a power cut.

A file has its bytes as programs see them, and as they are on the platter; what differs is a set of
dirty sectors. Names have a journal of what has been done to them since `sync_directory`. A power cut
keeps any subset of both, chosen by the random source it is given.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from ..errors import StoreInUse
from .disk import Buffer, Disk, File

SECTOR_BYTES = 512
CAPACITY_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class Inode:
    """What a file is, whatever its names."""

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
        """What a kernel does whose write failed: the pages count as clean, the platter is old."""
        self.dirty.clear()

    def after_power_cut(self, random: Random, keep: float) -> Inode:
        """Some sectors new, some old, each kept with probability `keep`; the size old or new."""
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


class Volume:
    """What is on the disk. Outlives the `MemoryDisk`s through which programs see it."""

    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        """May be changed at any time."""
        self.seen: dict[str, Inode] = {}
        self.locked = False
        self._stable: dict[str, Inode] = {}
        self._journal: list[tuple[str | None, str | None, Inode]] = []
        """Old name, new name and the inode, since the names were last made stable."""

    @property
    def free_bytes(self) -> int:
        used = sum(len(inode.seen) for inode in self.seen.values())
        return max(0, self.capacity_bytes - used)

    def change(self, old: str | None, new: str | None, inode: Inode) -> None:
        self._journal.append((old, new, inode))
        _apply(self.seen, old, new, inode)

    def sync_names(self) -> None:
        self._stable = dict(self.seen)
        self._journal.clear()

    def after_power_cut(self, random: Random) -> Volume:
        """What another start of the machine may find."""
        keep = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        names = dict(self._stable)
        for old, new, inode in self._journal:
            if random.random() < keep:
                _apply(names, old, new, inode)
        left = Volume(capacity_bytes=self.capacity_bytes)
        cut = {id(inode): inode.after_power_cut(random, keep) for inode in names.values()}
        left.seen = {name: cut[id(inode)] for name, inode in sorted(names.items())}
        left.sync_names()
        return left

    def copy(self) -> Volume:
        """The same contents, everything stable."""
        left = Volume(capacity_bytes=self.capacity_bytes)
        left.seen = {
            name: Inode(bytearray(inode.seen), bytearray(inode.seen))
            for name, inode in self.seen.items()
        }
        left.sync_names()
        return left

    def flip(self, name: str, bit: int) -> None:
        """One bit of the medium turns over."""
        for data in (self.seen[name].seen, self.seen[name].stable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def cut(self, name: str, size_bytes: int) -> None:
        """The file ends here."""
        for data in (self.seen[name].seen, self.seen[name].stable):
            del data[size_bytes:]


def _apply(names: dict[str, Inode], old: str | None, new: str | None, inode: Inode) -> None:
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = inode


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


class MemoryDisk(Disk):
    """One program's view of a volume."""

    path = "memory"

    def __init__(self, volume: Volume | None = None) -> None:
        self.volume = volume or Volume()
        self._holds_lock = False

    def lock(self) -> None:
        if self.volume.locked:
            raise StoreInUse(self.path)
        self.volume.locked = self._holds_lock = True

    def names(self) -> list[str]:
        return sorted(self.volume.seen)

    def create(self, name: str) -> File:
        if name in self.volume.seen:
            raise FileExistsError(errno.EEXIST, "exists", name)
        inode = Inode()
        self.volume.change(None, name, inode)
        return MemoryFile(self.volume, inode)

    def open(self, name: str) -> File:
        return MemoryFile(self.volume, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        self.volume.change(old, new, self._inode(old))

    def unlink(self, name: str) -> None:
        self.volume.change(name, None, self._inode(name))

    def sync_directory(self) -> None:
        self.volume.sync_names()

    def free_bytes(self) -> int:
        return self.volume.free_bytes

    def close(self) -> None:
        if self._holds_lock:
            self.volume.locked = self._holds_lock = False

    def _inode(self, name: str) -> Inode:
        try:
            return self.volume.seen[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None
