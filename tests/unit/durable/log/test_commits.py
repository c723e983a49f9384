"""Commits that are written here and synced by the kernel: which ones, and that one promises no more than in a thread."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.errors import StoreFailed
from durable.log.commits import IN_LOOP_BYTES_MAX, QUICK_S, RECENT_S
from durable.log.disk import File, Syncer
from durable.log.faulty_disk import FaultyDisk
from durable.log.log import Log, open_log
from durable.log.memory_disk import Volume
from mesh.spinning import spinner_of_this_run
from tests.logs import LARGE, SMALL, publish
from tests.waiting import PATIENCE_S, until


class KernelOfTests(Syncer):
    """Syncs at once, or when it is let go; `begun` and `waited` count, `taking` is whether it does it at all."""

    def __init__(self) -> None:
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        self._file: File | None = None
        self._error: OSError | None = None
        self._ended = threading.Event()
        self.begun = self.waited = 0
        self.taking, self.holding = True, False
        self.fails = False
        self.closed_by: int | None = None

    @property
    def eventfd(self) -> int:
        return self._eventfd

    def begin(self, file: File) -> bool:
        assert self._file is None, "one at a time"
        if not self.taking:
            return False
        self.begun += 1
        self._file = file
        self._ended.clear()
        if not self.holding:
            self.let_go()
        return True

    def let_go(self) -> None:
        assert self._file is not None
        try:
            if self.fails:
                raise OSError(errno.EIO, "sync failed")
            self._file.fdatasync()
        except OSError as error:
            self._error = error
        os.eventfd_write(self._eventfd, 1)  # First: who waits for it may close that at once.
        self._ended.set()

    def end(self) -> None:
        assert self._ended.is_set(), "not before it has been told"
        self._file = None
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        self.waited += 1
        assert self._ended.wait(PATIENCE_S)

    def close(self) -> None:
        self.closed_by = threading.get_ident()
        os.close(self._eventfd)


class SyncingDisk(FaultyDisk):
    def __init__(self, volume: Volume, kernel: KernelOfTests) -> None:
        super().__init__(volume)
        self._kernel = kernel

    def syncer(self) -> Syncer:
        return self._kernel


@pytest.fixture
def kernel() -> KernelOfTests:
    return KernelOfTests()


@pytest.fixture
def disk(kernel: KernelOfTests) -> SyncingDisk:
    return SyncingDisk(Volume(), kernel)


async def when(log: Log, condition: Callable[[], object]) -> None:
    """Wait for what comes with a commit, a segment or a call; on a clock that stands still, too."""
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await log._changed.wait()


async def settled(log: Log) -> None:
    """Segments and spares are made: a commit finds nothing else of the store in the kernel."""
    await wait_all_tasks_blocked()  # Whoever makes them may not have had its first turn.
    await when(log, lambda: not log.calls and not log._committer.segment_pending)


async def begin(log: Log, number: int, size_bytes: int = 40) -> int:
    """A commit that is on its way when this returns."""
    await settled(log)
    (position,) = log.append_nowait([publish(number, size_bytes)])
    log.commit_nowait()
    return position


async def commit(log: Log, number: int, size_bytes: int = 40) -> None:
    await log.wait_durable(await begin(log, number, size_bytes))


def looking() -> int:
    return spinner_of_this_run()._expecting


async def test_the_first_commit_is_for_the_thread_and_what_follows_for_the_kernel(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        assert kernel.begun == 0, "nobody knows yet whether this disk is quick"
        for number in range(2, 6):
            await commit(log, number)
        assert (kernel.begun, looking()) == (4, 0)
        mock_clock.jump(RECENT_S)
        await commit(log, 6)
        assert kernel.begun == 4, "it may hang by now"
        await commit(log, 7)
        assert kernel.begun == 5
        records = await log.read(0, 10_000)
    assert [one.position for one in records] == list(range(1, 8))


async def test_who_is_given_what_runs_all_calls_gets_all_of_them(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL, in_thread=trio.to_thread.run_sync) as log:
        for number in range(1, 4):
            await commit(log, number)
    assert kernel.begun == 0


async def test_nothing_is_looked_at_when_the_log_is_closed(disk: SyncingDisk) -> None:
    async with open_log(disk, SMALL) as log:
        writer: Any = log._commits._writer
    with pytest.raises(KeyError):
        spinner_of_this_run().unwatch(writer._done)


async def test_it_is_durable_when_the_kernel_says_so_and_not_before(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        kernel.holding = True
        position = await begin(log, 2)
        assert (kernel.begun, looking(), log.durable_end) == (1, 1, position)
        file = disk._inner.volume.seen["msgs.0000000001"]
        assert file.stable != file.seen
        (later,) = log.append_nowait([publish(3)])
        kernel.holding = False
        kernel.let_go()
        await log.wait_durable(later)
        assert (kernel.begun, looking()) == (2, 0)
        assert file.stable == file.seen
        trio.lowlevel.remove_instrument(spinner_of_this_run())  # KeyError: the loop never asked.


async def test_a_slow_one_and_a_large_one_are_for_the_thread(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, replace(LARGE, segment_bytes=1 << 20)) as log:
        await commit(log, 1)
        await commit(log, 2, IN_LOOP_BYTES_MAX)
        assert kernel.begun == 0
        kernel.holding = True
        position = await begin(log, 3)
        mock_clock.jump(1.01 * QUICK_S)
        kernel.holding = False
        kernel.let_go()
        await log.wait_durable(position)
        assert kernel.begun == 1
        await commit(log, 4)
        assert kernel.begun == 1, "the one before took long"
        await commit(log, 5)
        assert kernel.begun == 2


async def test_while_anything_else_of_the_store_is_in_the_kernel_it_is_for_the_thread(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        let_go = threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.in_thread, let_go.wait)
            await wait_all_tasks_blocked()
            (position,) = log.append_nowait([publish(2)])
            await log.wait_durable(position)
            assert kernel.begun == 0
            let_go.set()
        await commit(log, 3)
        assert kernel.begun == 1


async def test_a_commit_that_begins_a_segment_is_for_the_thread(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    """It has two files to sync. All are there again in the next life."""
    async with open_log(disk, SMALL) as log:
        for number in range(1, 40):
            await commit(log, number, 300)
        segments = log.statistics().segments
        assert segments > 2
        assert 39 - 1 - segments <= kernel.begun < 39
    async with open_log(FaultyDisk(disk._inner.volume), SMALL) as log:
        assert [one.position for one in await log.read(0, 1 << 20)] == list(range(1, 40))


async def test_a_kernel_that_does_not_take_it_is_not_asked_again(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        kernel.taking = False
        await commit(log, 2)
        kernel.taking = True
        await commit(log, 3)
        assert (kernel.begun, looking()) == (0, 0)
        assert [one.position for one in await log.read(0, 10_000)] == [1, 2, 3]


async def test_a_sync_that_fails_stops_the_store(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        kernel.fails = True
        position = await begin(log, 2)
        with pytest.raises(StoreFailed, match="sync failed"):
            await log.wait_durable(position)
        assert (kernel.begun, looking(), log.durable_end) == (1, 0, position)
        assert not log.calls, "nothing of it is under way"


@pytest.mark.parametrize(("error", "stops"), [(errno.EIO, True), (errno.ENOSPC, False)])
async def test_a_write_that_fails_here_is_told_as_from_the_thread(
    error: int, stops: bool, mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        disk.faults.write_error = error
        position = await begin(log, 2)
        if stops:
            with pytest.raises(StoreFailed, match="write failed"):
                await log.wait_durable(position)
        else:
            await when(log, lambda: log._committer.waits_for_space)
            disk.faults.write_error = None
            mock_clock.jump(SMALL.retry_s)
            await log.wait_durable(position)
        assert kernel.begun == 0


async def test_a_sync_that_hangs_is_told_and_the_log_can_be_left(
    caplog: pytest.LogCaptureFixture, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    """The files stay open and the directory locked until it is back; then they are let go."""
    caplog.set_level(logging.ERROR)
    async with open_log(disk, replace(SMALL, commit_s_max=0.01)) as log:
        log._commits._quick_until_s = inf
        kernel.holding = True
        await begin(log, 1)
        await until(lambda: "the disk hangs" in caplog.text)
    await until(lambda: kernel.waited)
    assert "stays open" in caplog.text
    assert (looking(), disk._inner.volume.locked) == (0, True)
    kernel.let_go()
    await until(lambda: not disk._inner.volume.locked)


async def test_the_thread_ends_what_the_kernel_has_of_a_log(
    kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    """It takes 32 ms: the loop of a broker stood still for so long for each vhost that was deleted."""
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
    await until(lambda: kernel.closed_by)
    assert kernel.closed_by != threading.get_ident()


async def test_what_waits_for_space_is_not_begun_again_when_the_store_has_stopped(
    mock_clock: MockClock, kernel: KernelOfTests, disk: SyncingDisk
) -> None:
    """Nobody would wait for its end, and the loop look for it as long as the log is open."""
    async with open_log(disk, SMALL) as log:
        await commit(log, 1)
        disk.faults.write_error = errno.ENOSPC
        await begin(log, 2)
        await when(log, lambda: log._committer.waits_for_space)
        disk.faults.write_error = None
        log._fail("reading failed", OSError(errno.EIO, "Input/output error"))
        log._space.wake()
        await wait_all_tasks_blocked()
        assert (kernel.begun, looking(), len(log.calls)) == (0, 0, 0)
