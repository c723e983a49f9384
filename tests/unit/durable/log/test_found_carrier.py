"""A carrier, or what was to be one, as a start finds it after a kill."""

from __future__ import annotations

import errno

import pytest

from durable.errors import StoreFull
from durable.log.header import SEGMENT_HEADER_BYTES, segment_name, spare_name
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.placing import AheadState
from durable.log.spares import CARRIER
from tests.full_logs import (
    Tight,
    carried,
    carrying,
    in_spare,
    spacious,
)
from tests.logs import SMALL, PlainLog, acks, publish


class Refusing(MemoryDisk):
    """No name is changed while there is an error."""

    error: int | None = None

    def rename(self, old: str, new: str) -> None:
        if self.error is not None:
            raise OSError(self.error, "refused")
        super().rename(old, new)


def refusing() -> tuple[Volume, Refusing, PlainLog, int]:
    """With a carrier, on a disk that is full; the number of the next segment."""
    volume = spacious()
    carrying(volume).close()
    volume.capacity_bytes = volume.used_bytes
    disk = Refusing(volume)
    log = PlainLog(disk)
    number = log.committer.placer.write_point.number + 1
    return volume, disk, log, number


def test_a_carrier_that_cannot_be_renamed_is_the_carrier_still() -> None:
    volume, disk, log, number = refusing()
    disk.error = errno.ENOSPC
    with pytest.raises(StoreFull) as caught:
        log.store.use_carrier(number)
    assert caught.value.needed_bytes == SMALL.segment_bytes
    disk.error = None
    log.store.use_carrier(number)
    assert segment_name(number) in volume.seen


def ahead_for_carrier() -> tuple[Volume, str]:
    """As a kill leaves it, before the carrier's first record; the name it has."""
    volume = spacious()
    log = carrying(volume)
    name = segment_name(log.committer.placer.write_point.number + 1)
    volume.seen[name] = volume.seen.pop(spare_name(CARRIER))
    volume = volume.copy()
    volume.capacity_bytes = volume.used_bytes
    return volume, name


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_start_does_without_a_carrier_that_cannot_be_renamed(error: int) -> None:
    volume, name = ahead_for_carrier()
    disk = Refusing(volume)
    disk.error = error
    log = PlainLog(disk)
    assert name in volume.seen
    assert log.committer.placer.spares.carrier is None
    assert log.committer.placer.ahead is AheadState.READY
    log.write(publish(1, 1500))


@pytest.mark.parametrize("torn", [range(1), range(20, 40), range(200, 300)])
def test_a_carrier_whose_first_write_was_torn_is_one_again(torn: range) -> None:
    """Found: a start removed it, and others took its place."""
    volume, name = ahead_for_carrier()
    volume.seen[name].write(b"x" * len(torn), torn.start)
    log = PlainLog(MemoryDisk(volume))
    assert log.committer.placer.spares.carrier is not None
    assert not any(volume.seen[spare_name(CARRIER)].seen)
    before = log.contents()
    while log.committer.placer.spares.carrier is not None:
        log.write(carried(1))
    expected = log.contents()
    assert expected.items() > before.items()
    log.close()
    log = PlainLog(MemoryDisk(volume))
    assert log.contents() == expected
    assert not log.report.gaps


@pytest.mark.parametrize("refused", [range(SEGMENT_HEADER_BYTES), range(SMALL.segment_bytes)])
def test_where_it_cannot_be_zeros_again_it_gives_its_space_back(refused: range) -> None:
    """Also where the rest can: found, it was cut, and grew again into a file with a hole."""
    volume, name = ahead_for_carrier()
    volume.seen[name].write(b"x" * SMALL.segment_bytes, 0)
    log = PlainLog(Tight(volume, name, refused))
    assert log.committer.placer.spares.carrier is None
    assert log.committer.placer.ahead is AheadState.REFUSED
    assert not {name, spare_name(CARRIER)} & volume.seen.keys()
    log.write(acks(7, 0, 1))


def test_a_spare_that_was_begun_without_a_record_keeps_its_size() -> None:
    """Found: its header was written once more, with the size of a segment, and the start after that took so much."""
    volume = Volume(capacity_bytes=4 * SMALL.segment_bytes)
    log = in_spare(volume)
    point = log.committer.placer.write_point
    name = segment_name(point.number)
    file = volume.seen[name]
    log.close()
    file.write(bytes(point.at - 64), 64)
    for number in range(2):
        log = PlainLog(MemoryDisk(volume))
        assert log.committer.placer.write_point.capacity_bytes == point.capacity_bytes
        assert log.report.torn is None
        log.write(acks(7, number, number + 1))
        log.close()
        assert len(file.seen) == point.capacity_bytes


def test_a_commit_for_which_the_carrier_cannot_be_renamed_is_carried_out_later() -> None:
    volume, disk, log, number = refusing()
    while log.committer.placer.spares.carrier is not None:
        log.append(carried(1))
    commit = log.committer.begin(0.0)
    assert commit is not None
    disk.error = errno.ENOSPC
    with pytest.raises(StoreFull) as caught:
        log.store.carry_out(commit)
    assert caught.value.needed_bytes == commit.size_bytes
    disk.error = None
    log.store.carry_out(commit)
    assert segment_name(number) in volume.seen
