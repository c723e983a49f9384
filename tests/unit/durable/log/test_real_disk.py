"""The real disk does what the memory disk does; whatever is tested on one holds for the other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from durable.errors import StoreFailed, StoreInUse
from durable.log.disk import Disk, write_zeros
from durable.log.memory_disk import MemoryDisk
from durable.log.real_disk import PIECES_MAX, RealDisk
from tests.logs import PlainLog, acks, publish


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "store") if request.param == "real" else MemoryDisk()


def test_files(disk: Disk) -> None:
    file = disk.create("one")
    file.pwritev([b"abc", b"", memoryview(b"def")], 2)
    assert file.pread(10, 0) == b"\0\0abcdef"
    assert file.pread(3, 4) == b"cde"
    assert file.pread(3, 100) == b""
    file.preallocate(100)
    assert file.size_bytes == 100
    file.preallocate(50)
    assert file.size_bytes == 100, "never smaller"
    file.truncate(4)
    file.preallocate(8)
    assert file.pread(10, 0) == b"\0\0ab\0\0\0\0"
    file.fdatasync()
    file.close()
    with pytest.raises(FileExistsError):
        disk.create("one")
    with pytest.raises(FileNotFoundError):
        disk.open("two")
    disk.create("two").close()
    disk.rename("one", "two")
    disk.sync_directory()
    assert disk.names() == ["two"]
    assert disk.open("two").size_bytes == 8
    disk.unlink("two")
    assert disk.names() == []
    with pytest.raises(FileNotFoundError):
        disk.unlink("two")
    assert disk.free_bytes() > 0


def test_directories(disk: Disk) -> None:
    below = disk.directory("one")
    with pytest.raises(FileNotFoundError):
        below.names()
    with pytest.raises(FileNotFoundError):
        below.create("file")
    with pytest.raises(FileNotFoundError):
        disk.remove_directory("one")
    disk.make_directory("one")
    with pytest.raises(FileExistsError):
        disk.make_directory("one")
    assert disk.names() == ["one"]
    assert below.path.endswith("/one")
    file = below.create("new")
    file.pwritev([b"abc"], 0)
    below.rename("new", "file")
    below.sync_directory()
    assert (below.names(), disk.names()) == (["file"], ["one"])
    assert disk.directory("one").open("file").pread(9, 0) == b"abc"
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory("one")
    below.unlink("file")
    disk.remove_directory("one")
    assert disk.names() == []


def test_what_was_allocated_and_never_written_is_known(disk: Disk) -> None:
    file = disk.create("one")
    file.preallocate(4 << 20)
    file.pwritev([b"abc"], 1 << 20)
    file.fdatasync()
    assert (1 << 20) + 3 <= file.data_end() <= 2 << 20
    file.pwritev([b"d"], (4 << 20) - 1)
    assert file.data_end() == 4 << 20, "what is in the cache only counts as well"


def test_zeros_that_were_read_are_known_to_be_such_once_they_are_forgotten(disk: Disk) -> None:
    file = disk.create("one")
    file.preallocate(4 << 20)
    file.pwritev([b"abc"], 1 << 20)
    file.fdatasync()
    assert not any(file.pread(2 << 20, 2 << 20))
    file.forget_read((1 << 20) + 3)
    assert (1 << 20) + 3 <= file.data_end() <= 2 << 20
    assert file.pread(3, 1 << 20) == b"abc"


def test_many_pieces(disk: Disk) -> None:
    pieces = [bytes([number % 256]) * (number % 7 + 100) for number in range(2 * PIECES_MAX + 5)]
    file = disk.create("one")
    file.pwritev(pieces, 3)
    assert file.pread(1 << 20, 3) == b"".join(pieces)


def test_a_removed_file_can_be_read_by_who_has_it(disk: Disk) -> None:
    file = disk.create("one")
    file.pwritev([b"abc"], 0)
    disk.unlink("one")
    assert file.pread(3, 0) == b"abc"


def test_a_log(disk: Disk) -> None:
    log = PlainLog(disk)
    for number in range(40):
        log.write(publish(number, 300), acks(7, number, number + 1))
    contents = log.contents()
    assert sorted(contents) == list(range(1, 81))
    log.close()
    again = PlainLog(disk)
    assert again.contents() == contents
    assert again.report.gaps == ()
    again.close()


def test_a_commit_opens_nothing_to_sync_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: where there was no descriptor left when a spare became a segment, the store stopped for good."""
    disk = RealDisk(tmp_path / "store")
    disk.lock()
    held = disk._directory
    assert held is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", None)
        disk.sync_directory()
    disk.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
    disk.sync_directory()


@pytest.mark.parametrize("locked", [False, True])
def test_names_that_cannot_be_synced_are_said_to_be_whose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """Found: a broker that did not start for that said `[Errno 5] Input/output error`, and nothing else."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk = RealDisk(tmp_path)
    if locked:
        disk.lock()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=str(tmp_path)):
        disk.sync_directory()
    disk.close()


def test_where_there_is_no_descriptor_for_that_the_lock_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, disk = os.open, RealDisk(tmp_path / "store")

    def scarce(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", scarce)
        with pytest.raises(StoreFailed, match="Too many open files"):
            disk.lock()
    disk.lock()
    disk.close()


def test_the_lock_keeps_out_this_process_too(tmp_path: Path) -> None:
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock()
    with pytest.raises(StoreInUse, match=str(tmp_path)):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_what_cannot_be_locked_is_said(tmp_path: Path) -> None:
    """Found: a stack trace with an IsADirectoryError."""
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreFailed, match=r"cannot be locked: .*lock"):
        RealDisk(tmp_path).lock()


def test_a_new_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    RealDisk(tmp_path / "store").create("one").close()
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0
    assert (tmp_path / "store" / "one").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("size_bytes", [1000, 4096])
def test_zeros_are_written_piece_by_piece(size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr("durable.log.disk.ZEROS_BYTES", 100)
    file = disk.create("one")
    file.pwritev([b"x" * size_bytes], 0)
    write_zeros(file, 50, size_bytes - 95)
    assert file.pread(2 * size_bytes, 0) == b"x" * 50 + bytes(size_bytes - 145) + b"x" * 95
