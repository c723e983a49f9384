"""Logs of a few small segments on disks that are full, or become full."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from durable.errors import StoreFull
from durable.log.disk import Buffer, File
from durable.log.faulty_disk import Faults, FaultyFile
from durable.log.memory_disk import MemoryDisk, MemoryFile, Volume
from durable.log.placing import Placer
from durable.log.record import Draft, Kind
from durable.log.spares import SPARES, Spare
from durable.log.store import Store
from tests.logs import SMALL, PlainLog, acks, publish

SNAPSHOT_BYTES = 304


class Tight(MemoryDisk):
    """A disk that copies on overwriting, and has no space for the copies at some positions of one file."""

    def __init__(self, volume: Volume, name: str, refused: range) -> None:
        super().__init__(volume)
        self._name, self._refused = name, refused

    def open(self, name: str) -> File:
        file = super().open(name)
        assert isinstance(file, MemoryFile)
        return TightFile(file, self._refused) if name == self._name else file


class TightFile(FaultyFile):
    def __init__(self, file: MemoryFile, refused: range) -> None:
        super().__init__(file, Faults())
        self._refused = refused

    def pwritev(self, pieces: Sequence[Buffer], at: int) -> None:
        self._faults.write_error = errno.ENOSPC if at in self._refused else None
        super().pwritev(pieces, at)


def room() -> Volume:
    return Volume(capacity_bytes=3 * SMALL.segment_bytes + SMALL.segment_bytes // 2)


def spacious() -> Volume:
    return Volume(capacity_bytes=5 * SMALL.segment_bytes + SMALL.segment_bytes // 2)


def opened(volume: Volume, **settings: Any) -> PlainLog:
    """Return a log with as many spares as there is space for."""
    log = PlainLog(MemoryDisk(volume), replace(SMALL, **settings))
    log.committer.placer.keep_for_snapshot(SNAPSHOT_BYTES)
    make_spares(log)
    return log


def make_spares(log: PlainLog) -> None:
    placer = log.committer.placer
    for wanted in placer.wanted_spares():
        placer.spares.add(log.store.make_spare(wanted))


def have_small(placer: Placer, *spares: Spare) -> None:
    """Give the placer these small spares and no others."""
    for one in list(placer.spares.small):
        placer.spares.withdraw(one)
    placer.spares.add(*spares)


def remove(store: Store, *numbers: int, spares_max: int = 0) -> list[Spare]:
    """Remove these segments, which are no longer needed."""
    store.unremoved += numbers
    return store.remove(spares_max)


def fill(log: PlainLog, segment_bytes: int = SMALL.segment_bytes) -> int:
    """Publish until there is no room; return how many messages were published."""
    with pytest.raises(StoreFull) as caught:
        for number in range(1000):
            log.write(publish(number, 200))
    assert caught.value.segment_bytes == segment_bytes
    assert caught.value.free_bytes < segment_bytes + log.config.free_bytes_min
    return number


def in_spare(volume: Volume) -> PlainLog:
    """Return a log whose reserve is used up and that writes to its first spare."""
    log = opened(volume)
    with pytest.raises(StoreFull):
        for number in range(1000):
            log.write(publish(number, 200))
    while len(log.committer.placer.spares.small) == SPARES:
        log.write(acks(7, 0, 1))
    return log


def behind_spare(volume: Volume) -> tuple[PlainLog, int]:
    """Return a log that writes to the segment after a spare, and the number of that spare's segment."""
    log = in_spare(volume)
    small = log.committer.placer.write_point.number
    while log.committer.placer.write_point.number == small:
        log.write(acks(7, 0, 1))
    return log, small


def carrying(volume: Volume) -> PlainLog:
    """Return a log with a carrier, on a disk that is now full."""
    log = opened(volume)
    while not log.committer.placer.needs_carrier:
        log.write(publish(1, 200))
    make_spares(log)
    assert log.committer.placer.spares.carrier is not None
    fill(log)
    return log


def carried(number: int, size_bytes: int = 200) -> Draft:
    """Return a record as compaction appends it."""
    return publish(number, size_bytes)._replace(kind=Kind.MOVED)
