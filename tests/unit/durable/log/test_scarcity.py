"""A process that is out of descriptors, on a disk that is well; in virtual time."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock

from durable.errors import StoreFailed
from durable.log.disk import File
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.scarcity import SCARCE_S_MAX
from tests.logs import SMALL, inline, publish
from tests.waiting import virtual_sleep


class Scarce(MemoryDisk):
    """No file is opened, nor made, while there is an error."""

    error: int | None = None

    def open(self, name: str) -> File:
        self._refuse()
        return super().open(name)

    def create(self, name: str) -> File:
        self._refuse()
        return super().create(name)

    def _refuse(self) -> None:
        if self.error is not None:
            raise OSError(self.error, "Too many open files")


@pytest.fixture
async def written() -> Volume:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        for number in range(50):
            await log.append([publish(number, 300)])
    return volume


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_readers_wait_and_one_says_so(
    written: Volume, error: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: the first to open a segment stopped the store for good."""
    disk, read = Scarce(written), list[int]()
    async with open_log(disk, SMALL, in_thread=inline) as log:

        async def read_at(position: int) -> None:
            read.extend(one.position for one in await log.read(position, 1))

        async with trio.open_nursery() as nursery:
            disk.error = error
            for position in (1, 20, 30):
                nursery.start_soon(read_at, position)
            await virtual_sleep(SCARCE_S_MAX - 1)
            assert not read
            disk.error = None
        assert sorted(read) == [1, 20, 30]
        await log.wait_durable(*await log.append([publish(50, 300)]))
    said = [one.message for one in caplog.records]
    assert [one.split(": ")[0] for one in said] == [
        "the store in memory waits for up to 60 s",
        "the store in memory continues",
    ]


async def test_nobody_waits_for_ever(written: Volume, autojump_clock: MockClock) -> None:
    disk = Scarce(written)
    async with open_log(disk, SMALL, in_thread=inline) as log:
        disk.error = errno.EMFILE
        with pytest.raises(StoreFailed, match="Too many open files"):
            await log.read(1, 1)
        assert SCARCE_S_MAX <= trio.current_time() <= SCARCE_S_MAX + 2 * SMALL.retry_s


async def test_what_the_disk_says_is_not_waited_for(written: Volume) -> None:
    disk = Scarce(written)
    async with open_log(disk, SMALL, in_thread=inline) as log:
        disk.error = errno.EIO
        with pytest.raises(StoreFailed):
            await log.read(1, 1)


async def test_a_segment_is_made_when_it_can_be(autojump_clock: MockClock) -> None:
    disk = Scarce(Volume())
    async with open_log(disk, SMALL, in_thread=inline) as log:
        disk.error = errno.EMFILE
        with trio.move_on_after(5 * SMALL.retry_s):
            for number in range(100):
                await log.append([publish(number, 200)])
        assert 20 > number > 5, "what the segments take that are there"
        assert log.failure is None
        disk.error = None
        await log.wait_durable(*await log.append([publish(number, 300)]))


async def test_commits_open_nothing_after_the_start(
    written: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that fails has failed for good."""
    async with open_log(MemoryDisk(written), SMALL, in_thread=inline) as log:
        monkeypatch.setattr(MemoryDisk, "open", None)
        segments = log.statistics().segments
        while log.statistics().segments < segments + 3:
            await log.wait_durable(*await log.append([publish(1, 300)]))
