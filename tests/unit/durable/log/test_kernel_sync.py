"""The kernel's own sync, on real files: begun at once, told when it has ended, with its error."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from durable.log import kernel_sync as module
from durable.log.disk import File
from durable.log.kernel_sync import KernelSync, kernel_sync
from durable.log.memory_disk import MemoryDisk
from durable.log.real_disk import RealDisk, RealFile

ROOT = Path(__file__).parents[4]
WITHOUT = """
import sys
sys.modules["caio"] = None
from durable.log.kernel_sync import kernel_sync
print(kernel_sync())
"""


@pytest.fixture
def kernel() -> KernelSync:
    kernel = kernel_sync()
    assert kernel is not None, "this machine's kernel has it"
    return kernel


@pytest.fixture
def file(tmp_path: Path) -> File:
    return RealDisk(tmp_path / "store").create("one")


def wait(kernel: KernelSync) -> None:
    assert select.select([kernel.told], [], [], 20)[0]
    assert os.eventfd_read(kernel.told) == 1


def test_one_after_the_other(kernel: KernelSync, file: File) -> None:
    for number in range(20):
        file.pwritev([b"%d" % number], 0)
        assert kernel.begin(file)
        wait(kernel)
        kernel.end()


def test_who_is_in_no_hurry_outlasts_it(kernel: KernelSync, file: File) -> None:
    assert kernel.begin(file)
    kernel.outlast()
    kernel.end()


def test_what_cannot_be_synced_so_is_not_begun(kernel: KernelSync, file: File) -> None:
    reading, writing = os.pipe()
    pipe = RealFile(reading)
    assert not kernel.begin(pipe)
    pipe.close()
    assert not kernel.begin(pipe), "closed"
    os.close(writing)
    assert not select.select([kernel.told], [], [], 0)[0]
    assert kernel.begin(file), "it goes on"
    kernel.outlast()


def test_a_file_in_memory_has_nothing_for_the_kernel(kernel: KernelSync) -> None:
    disk = MemoryDisk()
    assert disk.syncer() is None
    with pytest.raises(OSError, match="kernel"):
        kernel.begin(disk.create("one"))


class Kernel:
    """Of caio what is used: each sync has ended at once, with the result that it is given."""

    def __init__(self, result: int) -> None:
        self.result, self.fileno = result, os.eventfd(0)
        self.told: list[Callable[[int], object]] = []
        self.interrupted = False

    def Context(self, count: int) -> Kernel:
        assert count == 1
        return self

    @property
    def Operation(self) -> Any:
        return SimpleNamespace(fdsync=lambda _: SimpleNamespace(set_callback=self.told.append))

    def submit(self, _sync: object) -> int:
        return 1

    def process_events(self, count: int, *_how_long: int) -> int:
        assert count == 1
        if self.interrupted:
            self.interrupted = False
            raise SystemError(errno.EINTR, "Interrupted system call")
        self.told.pop()(self.result % 2**64)
        return 1


def test_its_error_is_that_of_an_fdatasync(file: File) -> None:
    aio = Kernel(-errno.EIO)
    kernel = KernelSync(aio)
    assert kernel.begin(file)
    with pytest.raises(OSError, match="Input/output error") as raised:
        kernel.end()
    assert raised.value.errno == errno.EIO
    aio.result = 0
    assert kernel.begin(file)
    kernel.end()
    os.close(aio.fileno)


def test_who_outlasts_it_goes_on_when_the_process_was_stopped_meanwhile(file: File) -> None:
    """Else the store would be closed under it."""
    aio = Kernel(0)
    kernel = KernelSync(aio)
    assert kernel.begin(file)
    aio.interrupted = True
    kernel.outlast()
    assert not aio.told, "it has ended"
    os.close(aio.fileno)


def test_where_there_are_no_more_of_them_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_count: int) -> object:
        raise SystemError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(
        module, "_linux_aio", lambda: SimpleNamespace(Context=refuse, Operation=None)
    )
    assert kernel_sync() is None


def test_where_caio_is_not_installed_there_is_none() -> None:
    command = [sys.executable, "-c", WITHOUT]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert found.stdout == "None\n"
