"""Files and directories among the checkpoint files that are not ours and have the name of something of ours."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.errors import StoreFailed
from durable.log.checkpoint import directory_name
from durable.log.checkpoints import Root
from durable.log.header import STORE_NAME, segment_name, spare_name
from durable.log.read_only_disk import ReadOnlyDisk
from durable.log.real_disk import LOCK_NAME, RealDirectory, RealDisk
from durable.log.spares import CARRIER, Spare
from tests.logs import SMALL, PlainLog
from tests.unit.durable.log.test_checkpoints import checkpoint, open_in


def test_a_file_of_others_that_is_called_as_the_directory_of_a_queue_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: no checkpoint was finished."""
    files = open_in(RealDirectory(tmp_path))
    files.write_all([checkpoint("jobs", 9)])
    theirs = tmp_path / "queues" / directory_name("mail")
    theirs.write_text("theirs")
    for _ in range(2):
        files.remove_others(["jobs"])
    assert theirs.read_text() == "theirs"
    assert list(files.acks()) == [checkpoint("jobs", 9).ack]
    assert caplog.messages == [
        f"{theirs} was not deleted: it is not a directory, so not of this broker"
    ]


@pytest.mark.parametrize("name", ["enq", "ack.new"])
def test_a_directory_of_others_where_a_file_of_a_queue_has_to_be_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Found: no checkpoint was written, nor finished once the queue was gone."""
    files = open_in(RealDirectory(tmp_path))
    theirs = tmp_path / "queues" / directory_name("jobs") / name
    theirs.mkdir(parents=True)
    (theirs / "notes.txt").touch()
    files.remove_others([])
    for position in range(2):
        files.write_all([checkpoint("jobs", position)])
        assert files.read("jobs", 7) == checkpoint("jobs", position)
    files.remove_others([])
    aside = theirs.with_name(f"{name}.aside")
    assert sorted(tmp_path.glob("queues/*/**/*")) == [aside, aside / "notes.txt"]
    assert caplog.messages == [
        f"{theirs.parent} was not deleted: it contains {name}, not of this broker",
        f"renamed {theirs} to {name}.aside: it does not belong to this broker",
    ]


@pytest.mark.parametrize("name", ["queues", f"queues/{directory_name('jobs')}"])
def test_a_file_of_others_where_a_directory_has_to_be_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Found: with a file `queues` no store was opened, and nothing salvaged; with the other one no checkpoint was
    written any more."""
    theirs = tmp_path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("theirs")
    files = open_in(RealDirectory(tmp_path))
    assert list(files.acks()) == []
    files.remove_unfinished()
    for position in range(2):
        files.write_all([checkpoint("jobs", position)])
        assert files.read("jobs", 7) == checkpoint("jobs", position)
    assert theirs.with_name(f"{theirs.name}.aside").read_text() == "theirs"
    assert caplog.messages == [
        f"renamed {theirs} to {theirs.name}.aside: it does not belong to this broker"
    ]


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.new"])
def test_a_directory_of_others_where_the_root_has_to_be_is_put_aside(
    tmp_path: Path, name: str
) -> None:
    files = open_in(RealDirectory(tmp_path))
    (tmp_path / name).mkdir()
    for extra in (b"1", b"2"):
        files.reserve_root(extra, b"")
        files.write_root(Root(12, 5, extra))
        assert files.read_root() == Root(12, 5, extra)
    assert (tmp_path / f"{name}.aside").is_dir()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, make_socket])
@pytest.mark.parametrize("number", [CARRIER, 9])
def test_what_is_no_regular_file_is_no_spare(
    tmp_path: Path, number: int, make: Callable[[Path], None]
) -> None:
    """Found: the store stopped when it looked for data in it, or removed what was not its own."""
    name = spare_name(number)
    PlainLog(RealDisk(tmp_path)).close()
    make(tmp_path / name)
    log = PlainLog(RealDisk(tmp_path))
    assert number not in [one.number for one in log.store.committer.placer.spares.small]
    assert log.store.make_spare(Spare(CARRIER, SMALL.segment_bytes)).is_carrier
    log.close()
    left = tmp_path / (f"damaged.{name}" if number == CARRIER else name)
    assert left.exists()
    assert not left.is_file()


@pytest.mark.parametrize("make", [os.mkfifo, make_socket])
@pytest.mark.parametrize("name", [segment_name(1), STORE_NAME])
def test_what_is_no_regular_file_is_refused_by_name_as_a_file_of_the_log(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Found: `Illegal seek`, without saying of what."""
    PlainLog(RealDisk(tmp_path)).close()
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with pytest.raises(StoreFailed, match=f"Not a regular file: '{tmp_path / name}'"):
        PlainLog(RealDisk(tmp_path))
    assert (tmp_path / name).exists()


def test_a_fifo_as_checkpoint_file_counts_as_missing(tmp_path: Path) -> None:
    files = open_in(RealDirectory(tmp_path))
    files.write_all([checkpoint("jobs", 9)])
    theirs = tmp_path / "queues" / directory_name("jobs") / "enq"
    theirs.unlink()
    os.mkfifo(theirs)
    assert files.read("jobs", 7) is None


def test_a_fifo_as_lock_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: `verify` never ended, as nobody writes to it."""
    PlainLog(RealDisk(tmp_path)).close()
    (tmp_path / LOCK_NAME).unlink()
    os.mkfifo(tmp_path / LOCK_NAME)
    opened = os.open

    def open_it(path: str | Path, flags: int, mode: int = 0o777) -> int:
        assert flags & os.O_NONBLOCK, "it would wait"
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_it)
    disk = ReadOnlyDisk(tmp_path)
    disk.lock()
    disk.close()
