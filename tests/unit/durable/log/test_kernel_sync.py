"""The kernel's own sync, on real files: begun at once, told when it has ended, with its error."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable.log.disk import File
from durable.log.kernel_sync import (
    DESTROY,
    GETEVENTS,
    SETUP,
    SUBMIT,
    KernelSync,
    _caller,
    kernel_sync,
)
from durable.log.memory_disk import MemoryDisk
from durable.log.real_disk import RealDisk, RealFile
from tests.eventfds import Eventfds


@pytest.fixture
def kernel() -> Iterator[KernelSync]:
    call = _caller(os.uname().machine)
    if call is None:
        pytest.skip(f"not known how to ask for it on {os.uname().machine}")
    try:
        kernel = KernelSync(call)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        pytest.skip("this machine's kernel is built without AIO")
    yield kernel
    kernel.close()


@pytest.fixture
def file(tmp_path: Path) -> File:
    return RealDisk(tmp_path / "store").create("one")


def wait(kernel: KernelSync) -> None:
    assert select.select([kernel.eventfd], [], [], 20)[0]
    assert os.eventfd_read(kernel.eventfd) == 1


def test_one_after_the_other(kernel: KernelSync, file: File) -> None:
    for number in range(20):
        file.pwritev([b"%d" % number], 0)
        assert kernel.begin(file)
        wait(kernel)
        kernel.end()


def test_who_is_in_no_hurry_outlasts_it(kernel: KernelSync, file: File) -> None:
    assert kernel.begin(file)
    kernel.wait()
    kernel.end()


def test_what_cannot_be_synced_so_is_not_begun(kernel: KernelSync, file: File) -> None:
    reading, writing = os.pipe()
    pipe = RealFile(reading)
    assert not kernel.begin(pipe)
    pipe.close()
    assert not kernel.begin(pipe), "closed"
    os.close(writing)
    assert not select.select([kernel.eventfd], [], [], 0)[0]
    assert kernel.begin(file), "it goes on"
    kernel.wait()


def test_a_file_in_memory_has_nothing_for_the_kernel(kernel: KernelSync) -> None:
    disk = MemoryDisk()
    assert disk.syncer() is None
    with pytest.raises(OSError, match="kernel"):
        kernel.begin(disk.create("one"))


class Kernel:
    """Each sync has ended at once, with the result that it is given."""

    def __init__(self, result: int = 0) -> None:
        self.result = result
        self.fails_with, self.interrupted = 0, False
        self.called: list[int] = []

    def __call__(self, which: int, *arguments: Any) -> int:
        self.called.append(which)
        if which == GETEVENTS:
            if self.interrupted:
                self.interrupted = False
                return -errno.EINTR
            arguments[3]._obj.result = self.result
        return -self.fails_with or int(which in {SUBMIT, GETEVENTS})


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
    kernel.close()
    assert aio.called == [SETUP, SUBMIT, GETEVENTS, SUBMIT, GETEVENTS, DESTROY]


def test_who_outlasts_it_goes_on_when_the_process_was_stopped_meanwhile(file: File) -> None:
    """Else the store would be closed under it."""
    aio = Kernel()
    kernel = KernelSync(aio)
    assert kernel.begin(file)
    aio.interrupted = True
    kernel.wait()
    assert aio.called[-2:] == [GETEVENTS, GETEVENTS]
    kernel.close()


def test_where_there_are_no_more_of_them_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    aio, eventfds = Kernel(), Eventfds(monkeypatch)
    aio.fails_with = errno.EAGAIN
    assert kernel_sync(aio) is None
    assert (eventfds.made, eventfds.open) == (1, set())


def test_on_a_machine_of_which_it_is_not_known_how_there_is_none() -> None:
    assert _caller("mips") is None
    assert kernel_sync(None) is None


def test_where_the_kernel_does_not_say_how_it_ended_that_is_an_error(file: File) -> None:
    """Also for an interpreter that leaves out assertions: what is unknown is never confirmed."""
    aio = Kernel()
    kernel = KernelSync(aio)
    assert kernel.begin(file)
    aio.fails_with = errno.EINVAL
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.end()
    kernel.close()
