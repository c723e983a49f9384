"""The files of the spares: made while there is space, made segments when no other can be made, and made spares again.

Which spares there should be, and what for: spares.py and placing.py.
"""

from __future__ import annotations

from itertools import count

from .allocation import Allocator
from .config import LogConfig
from .disk import NO_SPACE, Disk, File, set_aside, write_zeros
from .header import next_spare_number, segment_name, spare_name, spare_number
from .spares import CARRIER, NEW, Spare, was_small_spare


class SpareFiles:
    """The spare files of one store. They stay open, because there may be no descriptor left when one is needed."""

    def __init__(self, disk: Disk, config: LogConfig, allocator: Allocator) -> None:
        self._disk, self._config, self._allocator = disk, config, allocator
        self._files = self._open()
        self._numbers = count(next_spare_number(disk.names()))
        self._unmade_number: int | None = None
        """Number of a spare for which there was no space: a file left by an attempt that could not be undone has it."""
        self._rename_failed: set[int] = set()
        """Segments that should become spares, but there was no space for the name: the next attempt removes them."""
        self._removed_sizes: list[int] = []
        """Sizes of those that were removed: a new spare is made in that size, if it is large enough."""

    def _open(self) -> dict[int, File]:
        """Open all, by number. A carrier of another size than segments have now cannot be used, and is removed to free
        its space."""
        found: dict[int, File] = {}
        for name in self._disk.names():
            number = spare_number(name)
            if number is not None:
                try:
                    found[number] = self._disk.open(name)
                except FileNotFoundError:
                    pass
                except IsADirectoryError:
                    # Not a file, so not ours. Another spare can use another number; the carrier needs this one.
                    if number == CARRIER:
                        set_aside(self._disk, name, f"damaged.{name}")
        carrier = found.get(CARRIER)
        if carrier is not None and carrier.size_bytes != self._config.segment_bytes:
            found.pop(CARRIER).close()
            self._disk.unlink(spare_name(CARRIER))
        return found

    def spares(self) -> list[Spare]:
        """Return all that there are."""
        return [Spare(number, file.size_bytes) for number, file in self._files.items()]

    def make(self, wanted: Spare, available_bytes: int) -> Spare:
        """Make a new spare, or let the one with this number grow to that size; durable on return. A spare that replaces
        one which could not be renamed is made in the size of that one, if that is enough.

        Raises:
            StoreFull: not enough space. An existing spare is as it was, or larger.
            OSError: the disk failed.
        """
        number, size, least = wanted
        if (
            least is not None
            and self._removed_sizes
            and least <= self._removed_sizes[-1] <= available_bytes
        ):
            size = min(size, self._removed_sizes[-1])
        if available_bytes < size or (wanted.is_carrier and CARRIER in self._files):
            # Or the last carrier is in use, but is no segment yet.
            raise self._allocator.full_error(size)
        if number == NEW:
            if self._unmade_number is None:
                self._unmade_number = next(self._numbers)
            number = self._unmade_number
        file = self._files.get(number)
        with self._allocator.space_for(size):
            if file is None:
                self._files[number] = self._allocator.allocate(spare_name(number), size)
            else:
                file.preallocate(size)
                file.fdatasync()
        if number == self._unmade_number:
            self._unmade_number = None
            del self._removed_sizes[-1:]
        return Spare(number, size)

    def make_carrier_of(self, segment: int) -> Spare:
        """Make an unused segment the carrier. Raises StoreFull: there is no space for its name, and it stays one."""
        with self._allocator.space_for(self._config.segment_bytes):
            self._disk.rename(segment_name(segment), spare_name(CARRIER))
        self._disk.sync_directory()
        file = self._files[CARRIER] = self._disk.open(spare_name(CARRIER))
        return Spare(CARRIER, file.size_bytes)

    def convert(self, number: int, segment: int) -> File:
        """Make a spare a segment; the caller syncs its name. It is filled with zeros first: records from when it last
        was a segment would be read as records of this one."""
        file = self._files[number]
        write_zeros(file, 0, file.data_end())
        file.fdatasync()
        self._disk.rename(spare_name(number), segment_name(segment))
        return self._files.pop(number)

    def reuse(self, segment: int, file: File) -> Spare | None:
        """Rename a segment to a spare, so that at no moment others can take its space. Its contents stay until it is
        used. Return None if it was no spare, is gone, or there is no space for its new name for the second time.

        Raises:
            OSError: there is no space for its new name. It stays, as others could take the space of a removed file.
        """
        if not was_small_spare(self._config, file.size_bytes):
            return None
        spare = Spare(next(self._numbers), file.size_bytes)
        try:
            self._disk.rename(segment_name(segment), spare_name(spare.number))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in NO_SPACE or segment not in self._rename_failed:
                self._rename_failed.add(segment)
                raise
            self._removed_sizes.append(file.size_bytes)
            return None
        self._files[spare.number] = file
        return spare

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
