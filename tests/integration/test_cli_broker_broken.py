"""`inspect`, `verify` and `salvage` where a file cannot even be opened, or a directory listed: the disk has lost what
says where it stands."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.broker.directory import NAME_FILE
from durable.log.checkpoint import directory_name
from durable.log.header import STORE_NAME, segment_name
from durable.log.real_disk import RealFile
from tests.offline import MESSAGES, Offline, checkpoint
from tests.stores import QUEUE

Break = Callable[[str, int], None]


@pytest.fixture(params=["open", "size"])
def broken(
    request: pytest.FixtureRequest, directory: Offline, monkeypatch: pytest.MonkeyPatch
) -> Break:
    """Breaks the file of this name in the directory's log: the call fails with this errno."""

    def make_broken(name: str, number: int) -> None:
        there = directory.log / name
        inode, opened = there.stat().st_ino, os.open

        def fail(is_it: bool) -> None:
            if is_it:
                raise OSError(number, os.strerror(number), name)

        def open_it(path: Path, flags: int, mode: int = 0o777) -> int:
            fail(request.param == "open" and Path(path).absolute() == there)
            return opened(path, flags, mode)

        def size_of(file: RealFile) -> int:
            found = os.fstat(file._descriptor)
            fail(request.param == "size" and found.st_ino == inode)
            return found.st_size

        monkeypatch.setattr(os, "open", open_it)
        monkeypatch.setattr(RealFile, "size_bytes", property(size_of))

    return make_broken


def salvaged(directory: Offline) -> int:
    """Copies what can be read; how many messages that are."""
    assert directory.run("salvage", "data", "--to", "new", "--segment-size", "64K")[0] == 0
    return len(directory.run("inspect", "new", "--queue", QUEUE)[1].splitlines())


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN])
def test_a_segment_that_cannot_be_opened_costs_what_is_in_it(
    directory: Offline, broken: Break, number: int
) -> None:
    """Found: nothing of such a directory could be copied; `salvage` said to use `salvage`."""
    broken(segment_name(2), number)
    status, found = directory.json("verify", "data")
    (row,) = found["vhosts"]
    assert (status, len(row["gaps"])) == (1, 1)
    assert any("segment 2" in one for one in row["problems"])
    lost = row["gaps"][0]["end"] - row["gaps"][0]["start"]
    assert salvaged(directory) == MESSAGES - 5 - lost


def test_another_file_that_cannot_be_read_costs_nothing(directory: Offline, broken: Break) -> None:
    """Found: what looks for damaged files read them once more, and took that for the end."""
    broken(STORE_NAME, errno.EIO)
    status, found = directory.json("verify", "data")
    assert (status, found["vhosts"][0]["problems"]) == (1, [f"damaged: the file {STORE_NAME}"])
    assert salvaged(directory) == MESSAGES - 5


@pytest.mark.parametrize("name", ["queues", f"queues/{directory_name(QUEUE)}"])
def test_a_directory_of_checkpoints_that_cannot_be_listed_costs_what_is_in_it(
    directory: Offline, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Found: `verify` told nothing but that error, and `salvage` copied nothing."""
    checkpoint(directory, MESSAGES + 1)
    listed, there = os.listdir, directory.log / name

    def fail(path: str | Path) -> list[str]:
        if Path(path).absolute() == there:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", fail)
    status, found = directory.json("verify", "data")
    said = f"damaged: the directory {name} cannot be listed"
    assert (status, found["vhosts"][0]["problems"]) == (1, [said])
    assert salvaged(directory) == MESSAGES - 5


def test_without_a_directory_of_checkpoints_the_log_is_salvaged(directory: Offline) -> None:
    """Found: with a file of that name, `salvage` said to use `salvage`."""
    checkpoint(directory, MESSAGES + 1)
    shutil.rmtree(directory.log / "queues")
    (directory.log / "queues").touch()
    status, found = directory.json("verify", "data")
    said = ["damaged: queues is not a directory"]
    assert (status, found["vhosts"][0]["problems"]) == (1, said)
    assert salvaged(directory) == MESSAGES - 5


@pytest.mark.parametrize("name", [segment_name(2), STORE_NAME, f"../{NAME_FILE}"])
def test_a_fifo_is_not_waited_for(
    directory: Offline, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Found: a command that opens one never ended, as nobody writes to it."""
    fifo, opened = directory.log / name, os.open
    fifo.unlink()
    os.mkfifo(fifo)
    found: list[int] = []

    def open_it(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_fifo():
            assert flags & os.O_NONBLOCK, "it would wait"
            found.append(flags)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_it)
    directory.run("verify", "data")
    copied = salvaged(directory)
    assert found
    assert copied == MESSAGES - 5 if name != segment_name(2) else 0 < copied < MESSAGES - 5
