"""The segment files that a store has open: as many as are useful, and no more than there may be descriptors for."""

from __future__ import annotations

from threading import Lock

from .disk import Disk, File
from .header import segment_name

FILES_MAX = 64
"""Maximum number of open segments: a log may have any number of segments, and each open one takes a descriptor."""
NEWEST_KEPT = 8
"""So many of the newest segments are always kept open, because a commit must not need a descriptor."""


class OpenFiles:
    """Segment files by number. Any thread may call it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, File] = {}
        """In the order in which they were opened."""
        self.opening = Lock()
        """Held to open a file and to remove one: a removed file must not stay open, because it would take space."""

    def __contains__(self, number: int) -> bool:
        return number in self._files

    def file(self, number: int) -> File:
        """Return the file of a segment, opened if necessary."""
        file = self._files.get(number)
        if file is None:
            with self.opening:
                file = self.open_locked(number)
        return file

    def open_locked(self, number: int) -> File:
        """As `file`, for a caller that holds `opening`."""
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = self._disk.open(segment_name(number))
            self.close_excess()
        return file

    def add(self, number: int, file: File) -> None:
        """Add a file that has become this segment, and is open."""
        self._files[number] = file

    def drop(self, number: int) -> None:
        """Close this segment, when its last reader has finished."""
        self._files.pop(number, None)

    def close_excess(self) -> None:
        """Close the files above FILES_MAX that have been open longest, each when its last reader has finished. May be
        called while others open further files."""
        opened = [*self._files]
        newest = sorted(opened)[-NEWEST_KEPT:]
        others = [number for number in opened if number not in newest]
        for number in others[: max(0, len(opened) - FILES_MAX)]:
            self._files.pop(number, None)

    def close(self) -> None:
        """Close all. No thread may be reading or writing."""
        for file in self._files.values():
            file.close()
        self._files.clear()
