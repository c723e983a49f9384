"""Making the directory of a vhost, cut off anywhere."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from durable.broker import directory
from durable.broker.directory import make_vhost, vhost_path, vhosts, write_vhost
from durable.log.checkpoint import directory_name
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.memory_disk import MemoryDisk, Volume

NAMES = ("shop", "täglich/neu")


def make(disk: FaultyDisk) -> None:
    for name in NAMES:
        write_vhost(disk, name)


def changes() -> int:
    disk = FaultyDisk(Volume())
    make(disk)
    return disk.faults.changes


def has(volume: Volume, name: str) -> bool:
    folder = volume.folders.seen["vhosts"].folders.seen[directory_name(name)]
    return bytes(folder.seen["vhost"].seen) == name.encode() and "log" in folder.folders.seen


@pytest.mark.parametrize("cut_at", range(1, changes() + 1))
def test_a_vhost_is_there_whenever_its_making_was_cut_off_before(cut_at: int) -> None:
    """Found: after a kill its name was there, so nothing was synced, and a power cut could take all that
    it confirmed."""
    volume = Volume()
    with pytest.raises(PowerCut):
        make(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
    killed = [volume, *(volume.after_power_cut(Random(seed)) for seed in range(10))]
    for left in killed:
        make(FaultyDisk(left))
        for seed in range(3):
            again = left.after_power_cut(Random(seed))
            assert all(has(again, name) for name in NAMES)


def test_a_name_that_was_damaged_is_written_anew() -> None:
    volume = Volume()
    write_vhost(MemoryDisk(volume), "shop")
    folder = volume.folders.seen["vhosts"].folders.seen[directory_name("shop")]
    folder.seen["vhost"].seen[:] = b"\xff no name"
    write_vhost(MemoryDisk(volume), "shop")
    assert has(volume, "shop")


def test_the_data_directory_is_there_after_a_power_cut_and_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it was not synced where it stands, and the names of vhosts were for all to read."""
    synced: list[Path] = []
    monkeypatch.setattr(directory, "_sync", synced.append)
    data = tmp_path / "made" / "as" / "well"
    make_vhost(data, "shop")
    assert vhosts(data) == ["shop"]
    assert set(synced) == {tmp_path, tmp_path / "made", tmp_path / "made" / "as"}
    path = vhost_path(data, "shop")
    for one in (data, path.parent, path, path / "log", path / "vhost"):
        assert one.stat().st_mode & 0o077 == 0
