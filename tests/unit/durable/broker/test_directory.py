"""Making and deleting the directory of a vhost, cut off anywhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from durable.broker import directory
from durable.broker.directory import (
    check_usable,
    finish_removals,
    make_folders,
    make_vhost,
    remove_vhost,
    vhost_names,
    vhost_path,
    write_vhost_name,
)
from durable.log.checkpoint import directory_name
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.memory_disk import Folder, MemoryDisk, Volume
from durable.log.real_disk import RealDirectory

NAMES = ("shop", "täglich/neu")


def make(disk: FaultyDisk) -> None:
    for name in NAMES:
        write_vhost_name(disk, name)


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


@pytest.mark.parametrize("cut_at", range(1, changes() + 1))
def test_what_was_being_made_goes_whole_however_far_it_came(cut_at: int) -> None:
    """Found: without a name it stayed."""
    volume = Volume()
    with pytest.raises(PowerCut):
        make(FaultyDisk(volume, Faults(power_cut_at=cut_at)))
    for name in NAMES:
        remove_vhost(MemoryDisk(volume), name)
    above = volume.folders.seen.get("vhosts")
    assert above is None or not above.folders.seen


def with_messages() -> Volume:
    """A vhost that has something in it, all of it on disk."""
    volume = Volume()
    disk = MemoryDisk(volume)
    write_vhost_name(disk, "shop")
    log = disk.directory("vhosts").directory(directory_name("shop")).directory("log")
    log.create("store")
    log.make_directory("queues")
    log.directory("queues").create("ack")
    for one in (log, log.directory("queues")):
        one.sync_directory()
    return volume


def files(folder: Folder, above: str = "") -> set[str]:
    inner = [files(one, f"{above}{name}/") for name, one in folder.folders.seen.items()]
    return {above + name for name in folder.seen}.union(*inner)


def removals() -> int:
    disk = FaultyDisk(with_messages())
    remove_vhost(disk, "shop")
    return disk.faults.changes


@pytest.mark.parametrize("cut_at", range(1, removals() + 1))
def test_a_vhost_that_was_being_deleted_is_whole_or_gone(cut_at: int) -> None:
    """Once its first file may be gone it is no vhost any more, and no part of it is of the next one."""
    volume, whole = with_messages(), files(with_messages())
    with pytest.raises(PowerCut):
        remove_vhost(FaultyDisk(volume, Faults(power_cut_at=cut_at)), "shop")
    for left in [volume, *(volume.after_power_cut(Random(seed)) for seed in range(20))]:
        found = files(left)
        assert found == whole or not any(one.endswith("/vhost") for one in found)
        finish_removals(FaultyDisk(left))
        assert files(left) in (whole, set())


def test_what_was_deleted_stays_so() -> None:
    volume = with_messages()
    remove_vhost(MemoryDisk(volume), "shop")
    for seed in range(20):
        left = volume.after_power_cut(Random(seed))
        assert not any(one.endswith("/vhost") for one in files(left))


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    data = tmp_path / "data"
    (make_vhost(data, "shop") / "mine").symlink_to(tmp_path / "mine")
    remove_vhost(RealDirectory(data), "shop")
    assert not vhost_path(data, "shop").exists()
    assert (tmp_path / "mine" / "letter").exists()


def test_a_name_that_was_damaged_is_written_anew() -> None:
    volume = Volume()
    write_vhost_name(MemoryDisk(volume), "shop")
    folder = volume.folders.seen["vhosts"].folders.seen[directory_name("shop")]
    folder.seen["vhost"].seen[:] = b"\xff no name"
    write_vhost_name(MemoryDisk(volume), "shop")
    assert has(volume, "shop")


def test_a_vhost_that_is_made_while_they_are_listed_is_not_told_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: by a reader beside a broker, as one with another's name, for `salvage` to copy."""
    look = directory.is_vhost

    def looked(path: Path) -> bool:
        make_vhost(tmp_path, "shop")
        return look(path)

    monkeypatch.setattr(directory, "is_vhost", looked)
    (vhost_path(tmp_path, "shop") / "log").mkdir(parents=True)
    assert vhost_names(tmp_path) == ["shop"]
    assert not caplog.messages


def test_two_brokers_make_themselves_at_home_in_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: one of them ended with what it had not expected, instead of that the other one has it open."""
    look = RealDirectory.names

    def looked(self: RealDirectory) -> list[str]:
        """The other one goes on right behind each look."""
        found = look(self)
        (vhost_path(tmp_path, "/") / "log").mkdir(parents=True, exist_ok=True)
        return found

    monkeypatch.setattr(RealDirectory, "names", looked)
    assert make_folders(tmp_path, "/").is_dir()


def test_a_directory_in_which_another_broker_has_just_begun_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: "not a store of ours: it holds vhosts"."""
    look = Path.is_dir

    def looked(self: Path) -> bool:
        """The other one goes on right behind the look at what it makes."""
        found = look(self)
        if self.name == "vhosts":
            os.makedirs(self, exist_ok=True)
        return found

    monkeypatch.setattr(Path, "is_dir", looked)
    check_usable(tmp_path)


def test_the_vhost_that_is_always_there_is_not_told_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: where the disk gave its name once, and not when all were listed behind that, though it was served."""
    make_vhost(tmp_path, "/")

    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(directory, "read_front", failing)
    assert vhost_names(tmp_path) == ["/"]
    assert not caplog.messages


def test_the_data_directory_is_there_after_a_power_cut_and_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it was not synced where it stands, and the names of vhosts were for all to read."""
    synced: list[Path] = []
    monkeypatch.setattr(directory, "_sync", synced.append)
    data = tmp_path / "made" / "as" / "well"
    make_vhost(data, "shop")
    assert vhost_names(data) == ["shop"]
    assert set(synced) == {tmp_path, tmp_path / "made", tmp_path / "made" / "as"}
    path = vhost_path(data, "shop")
    for one in (data, path.parent, path, path / "log", path / "vhost"):
        assert one.stat().st_mode & 0o077 == 0
