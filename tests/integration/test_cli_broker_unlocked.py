"""`inspect`, `verify` and `salvage` where a broker is at work, or was killed at it: vhosts and segments go."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from durable.broker.directory import DELETED_FILE, NAME_FILE, make_vhost, remove_vhost, vhost_path
from durable.cli import main
from durable.log.disk import File
from durable.log.header import segment_name
from durable.log.read_only_disk import ReadOnlyDisk
from durable.log.real_disk import RealDirectory
from tests.offline import MESSAGES, Offline
from tests.stores import QUEUE

OTHER = "orders"


@pytest.fixture
def directory(directory: Offline, tmp_path: Path) -> Offline:
    """With vhosts `/` and `orders`, which are alike."""
    shutil.copytree(directory.log, make_vhost(tmp_path / "data", OTHER), dirs_exist_ok=True)
    return directory


def vhosts_of(found: dict[str, list[dict[str, str]]]) -> list[str]:
    return sorted(row["vhost"] for row in found["vhosts"])


def test_what_is_left_of_a_vhost_that_was_being_deleted_is_none(directory: Offline) -> None:
    """The next start of its broker removes the rest: it is no damage, and not to be had again."""
    other = vhost_path(directory.path / "data", OTHER)
    (other / NAME_FILE).rename(other / DELETED_FILE)
    (other / "log" / segment_name(1)).unlink()
    for command in ("verify", "inspect"):
        status, found = directory.json(command, "data")
        assert (status, vhosts_of(found)) == (0, ["/"])
    assert directory.run("salvage", "data", "--to", "new")[0] == 0
    assert vhosts_of(directory.json("inspect", "new")[1]) == ["/"]
    assert directory.run("verify", "data", "--vhost", OTHER)[0] == 1


def test_what_is_left_of_a_vhost_that_was_being_made_is_none(directory: Offline) -> None:
    other = vhost_path(directory.path / "data", "new")
    (other / "log").mkdir(parents=True)
    status, found = directory.json("verify", "data")
    assert (status, vhosts_of(found)) == (0, ["/", OTHER])


@pytest.mark.parametrize("words", [["verify"], ["inspect"], ["salvage", "--to", "new"]])
def test_a_vhost_that_is_deleted_meanwhile_costs_no_other(
    directory: Offline, words: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """When the commands come to it, which they found in the beginning."""
    looked_at = ReadOnlyDisk.lock

    def deleted_first(disk: ReadOnlyDisk) -> None:
        if disk.path == str(Path("data") / other / "log"):
            remove_vhost(RealDirectory(directory.path / "data"), OTHER)
        looked_at(disk)

    other = vhost_path(Path(), OTHER)
    monkeypatch.setattr(ReadOnlyDisk, "lock", deleted_first)
    assert main([words[0], "data", "--unlocked", "--json", *words[1:]]) == 0
    said = capsys.readouterr()
    assert vhosts_of(json.loads(said.out)) == ["/"]
    assert f"vhost {OTHER} was deleted while it was read" in said.err


def test_a_segment_that_is_freed_meanwhile_is_not_missed(
    directory: Offline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the listing of the directory and its turn."""
    opened = ReadOnlyDisk.open

    def freed_first(disk: ReadOnlyDisk, name: str) -> File:
        directory.first.unlink(missing_ok=True)
        return opened(disk, name)

    monkeypatch.setattr(ReadOnlyDisk, "open", freed_first)
    assert main(["inspect", "data", "--vhost", "/", "--unlocked", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["vhosts"]
    assert row["segments"][0]["number"] == 2
    assert row["report"]["records"] < MESSAGES
    assert [one["name"] for one in row["queues"]] in ([], [QUEUE])


def test_a_file_that_may_not_be_read_is_no_failed_disk(
    directory: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(disk: ReadOnlyDisk, name: str) -> File:
        raise PermissionError(errno.EACCES, "Permission denied", name)

    monkeypatch.setattr(ReadOnlyDisk, "open", refused)
    status, _, err = directory.run("verify", "data")
    assert (status, err) == (1, f"mesh-broker: {segment_name(1)}: Permission denied\n")
