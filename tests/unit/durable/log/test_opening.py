"""Opening a log is left: at once, and its thread lets go of the directory when it can."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from durable.errors import StoreClosed, StoreFailed
from durable.log import commits
from durable.log.log import open_log
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.opening import Opening
from durable.log.record import Record
from durable.log.series import one_by_one
from tests.logs import SMALL, inline, publish
from tests.waiting import PATIENCE_S, until

RECORDS = 30


async def written() -> Volume:
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL, in_thread=inline) as log:
        for number in range(RECORDS):
            await log.wait_durable(*await log.append([publish(number, 200)]))
    return volume


async def opened(volume: Volume, visit: Callable[[Record], object]) -> int:
    """How many segments there are."""
    async with open_log(MemoryDisk(volume), SMALL, visit=one_by_one(visit)) as log:
        return log.report.segments


async def test_where_no_descriptor_is_left_for_its_thread_the_directory_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed locked until the process ended: a vhost could not be opened again when there were some."""
    volume = await written()
    seen: list[Record] = []

    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(commits, "writer_of", refuse)
        with pytest.raises(StoreFailed, match=r"cannot be opened: .*Too many open files"):
            await opened(volume, seen.append)
    assert not volume.locked
    assert await opened(volume, seen.append) > 2


async def test_who_is_cancelled_leaves_and_the_thread_ends_with_its_segment() -> None:
    """Found: a start could not be ended before all of its log had been read, or ever, where the disk hung."""
    volume, seen = await written(), []
    reading, let_go = threading.Event(), threading.Event()

    def visit(record: Record) -> None:
        seen.append(record[0].position)
        reading.set()
        assert let_go.wait(PATIENCE_S)

    with trio.fail_after(PATIENCE_S / 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened, volume, visit)
            await until(reading.is_set)
            nursery.cancel_scope.cancel()
    assert volume.locked, "the thread is still in there"
    let_go.set()
    await until(lambda: not volume.locked)
    assert 1 <= len(seen) < RECORDS
    seen.clear()
    assert await opened(volume, visit) > 2
    assert len(seen) == RECORDS


class Left(BaseException):
    """As trio.Cancelled."""


class Late:
    """Worker threads whose caller leaves when they have done it, or before."""

    def __init__(self, *, done: bool) -> None:
        self._done = done

    async def in_thread(self, call: Callable[..., Any], *args: Any, **_options: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.run = partial(call, *args)
        if self._done:
            self.run()
        raise Left


class One:
    """A store."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("done", [True, False])
async def test_what_was_opened_as_its_caller_left_is_closed(done: bool) -> None:
    one, threads = One(), Late(done=done)
    opening: Any = Opening(threads.in_thread)
    with pytest.raises(Left):
        await opening.open(lambda: one)
    assert one.closed == done, "handed over to nobody"
    with pytest.raises(StoreClosed):
        opening.check()
    if not done:
        with pytest.raises(StoreClosed):
            threads.run()
        assert one.closed, "by its thread"
