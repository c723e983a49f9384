"""What is told of a commit that takes too long; time is virtual."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.log.faulty_disk import FaultyDisk
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, Volume
from tests.logs import SMALL, Gate, publish
from tests.waiting import virtual_sleep


async def test_a_sync_that_hangs_is_reported_and_others_go_on(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    gate = Gate()
    async with open_log(MemoryDisk(), SMALL, in_thread=gate) as log:
        await wait_all_tasks_blocked()
        (position,) = log.append_nowait([publish(1)])
        await log.wait_durable(position)
        gate.open = trio.Event()
        (hanging,) = log.append_nowait([publish(2)])
        await wait_all_tasks_blocked()
        assert log.statistics().overdue_s == 0
        for _ in range(12):  # At once it would be a loop that is late.
            mock_clock.jump((SMALL.commit_s_max + 1) / 12)
            await wait_all_tasks_blocked()
        assert log.statistics().overdue_s == 1
        assert "has been under way for 5.0 s" in caplog.text
        assert log.durable_end == hanging
        log.append_nowait([publish(3)])
        gate.open.set()
        await log.wait_durable(hanging + 1)
        assert log.statistics().overdue_s == 0
        assert caplog.text.count("under way") == 1


async def test_a_commit_that_ends_while_the_loop_is_late_is_no_disk_that_hangs(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: a program whose handler took more than `commit_s_max` was told, every other time, that its disk hangs."""
    caplog.set_level(logging.ERROR)
    gate = Gate()
    async with open_log(MemoryDisk(), SMALL, in_thread=gate) as log:
        await wait_all_tasks_blocked()
        for number in range(20):  # Who is first in such a turn is left to chance.
            gate.open = trio.Event()
            (position,) = log.append_nowait([publish(number)])
            await wait_all_tasks_blocked()
            mock_clock.jump(SMALL.commit_s_max + 1)
            gate.open.set()
            assert not log.statistics().overdue_s, "whoever asks in this turn is told nothing else"
            await log.wait_durable(position)
            await wait_all_tasks_blocked()
    assert not caplog.text


@asynccontextmanager
async def a_commit_under_way() -> AsyncGenerator[None]:
    """It ends when the block is left."""
    gate = Gate()
    async with open_log(MemoryDisk(), SMALL, in_thread=gate) as log:
        await wait_all_tasks_blocked()
        gate.open = trio.Event()
        (position,) = log.append_nowait([publish(1)])
        await wait_all_tasks_blocked()
        yield
        gate.open.set()
        await log.wait_durable(position)


async def test_a_process_that_was_stopped_for_longer_than_a_commit_may_take_is_no_disk_that_hangs(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: its own thread, which had been stopped, too, was to write what the disk was said to hang with."""
    caplog.set_level(logging.ERROR)
    async with a_commit_under_way():
        mock_clock.jump(2 * SMALL.commit_s_max)
        await wait_all_tasks_blocked()
        mock_clock.jump(SMALL.commit_s_max / 2)
        await wait_all_tasks_blocked()
    assert not caplog.text


async def test_a_disk_that_hangs_where_the_process_was_stopped_is_told(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with a_commit_under_way():
        mock_clock.jump(2 * SMALL.commit_s_max)
        told = []
        for _ in range(7):
            await wait_all_tasks_blocked()
            told.append(caplog.text)
            mock_clock.jump(SMALL.commit_s_max / 8)
        await wait_all_tasks_blocked()
        told.append(caplog.text)
    assert [text.count("the disk hangs") for text in told] == 7 * [0] + [1]


async def test_a_log_that_is_closed_as_its_process_is_stopped_is_not_left_open(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by reading: what it wrote last hung, it was said, and where others would have opened it, it was in use."""
    goes_on, disk = trio.Event(), MemoryDisk()

    async def in_thread(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        """One that is stopped, too, once there is something to be written."""
        if appended:
            await goes_on.wait()
        return call(*args)

    appended: list[int] = []

    async def life() -> None:
        async with open_log(disk, SMALL, in_thread=in_thread) as log:
            await wait_all_tasks_blocked()
            appended.extend(log.append_nowait([publish(1)]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(life)
        await wait_all_tasks_blocked()
        mock_clock.jump(2 * SMALL.commit_s_max)
        await wait_all_tasks_blocked()
        goes_on.set()
    assert not caplog.text
    async with open_log(disk, SMALL, in_thread=Gate()) as log:
        assert log.durable_end > appended[0]


async def test_a_commit_that_waits_for_space_is_no_disk_that_hangs(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: `status` said of a full disk that it hangs, and named no end to it."""
    caplog.set_level(logging.ERROR)
    gate, disk = Gate(), FaultyDisk(Volume())
    async with open_log(disk, SMALL, in_thread=gate) as log:
        disk.faults.write_error = errno.ENOSPC
        (position,) = log.append_nowait([publish(1)])
        await virtual_sleep(2 * SMALL.commit_s_max)
        assert log.statistics().full
        assert log.statistics().overdue_s == 0
        assert not caplog.text
        disk.faults.write_error = None
        gate.open = trio.Event()
        await virtual_sleep(SMALL.retry_s + SMALL.commit_s_max + 1)
        assert 0 < log.statistics().overdue_s <= 1 + SMALL.retry_s, "counted from the last attempt"
        assert caplog.text.count("the disk hangs") == 1
        gate.open.set()
        await log.wait_durable(position)
        assert log.statistics().overdue_s == 0
