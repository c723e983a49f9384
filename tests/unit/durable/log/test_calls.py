"""Calls in worker threads that nobody waits for any more. In real threads, which hang until they are let go."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from durable.errors import StoreClosed
from durable.log.calls import Calls
from durable.log.log import Log, open_log
from durable.log.memory_disk import MemoryDisk, Volume
from mesh.waker import Bell
from tests.logs import SMALL, publish
from tests.waiting import PATIENCE_S, until

IMPATIENT = replace(SMALL, commit_s_max=0.01)


class Hanging:
    """A call that does not return before it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *_: Any) -> str:
        self.begun.set()
        self.let_go.wait()
        return "done"


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    one = Hanging()
    yield one
    one.let_go.set()


async def leave(calls: Calls, one: Hanging) -> None:
    """Call it, and wait for it no more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, "reading", one)
        await until(one.begun.is_set)
        nursery.cancel_scope.cancel()


async def test_what_was_left_is_known_until_it_has_come_back(hanging: Hanging) -> None:
    changed = Bell()
    calls = Calls(trio.to_thread.run_sync, changed)
    await leave(calls, hanging)
    assert calls
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changed.wait)
        await wait_all_tasks_blocked()
        hanging.let_go.set()
    assert not calls


async def test_the_next_of_its_kind_waits_for_it_and_no_other_does(hanging: Hanging) -> None:
    """A disk that hangs would use up all threads, and two checkpoints would write the same files."""
    calls, done = Calls(trio.to_thread.run_sync, Bell()), list[str]()
    await leave(calls, hanging)

    async def read() -> None:
        await calls.call("reading", done.append, "read")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await calls.call("writing", done.append, "written")
        hanging.let_go.set()
    assert done == ["written", "read"]
    assert not calls


async def test_what_it_returns_or_raises_is_told_and_nothing_is_left() -> None:
    calls = Calls(trio.to_thread.run_sync, Bell())
    assert await calls.call("reading", int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        await calls.call("reading", int, "seven")
    assert not calls


async def test_what_was_left_before_it_began_is_not_done() -> None:
    """A thread may have taken it by then."""
    calls, threads, done = Calls(None, Bell()), list[Any](), list[str]()  # type: ignore[arg-type]

    async def not_yet(call: Any, *, abandon_on_cancel: bool) -> None:
        threads.append(call)
        await trio.sleep_forever()

    calls.in_thread = not_yet
    with trio.move_on_after(0):
        await calls.call("reading", done.append, "read")
    assert not calls
    threads[0]()
    await wait_all_tasks_blocked()
    assert not done
    assert not calls


async def left(log: Log, one: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that leaves while the disk hangs."""
    await log.wait_durable(*log.append_nowait([publish(1)]))
    with monkeypatch.context() as patch:
        patch.setattr(log._store.reader, "read_some", one)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.read, 1, 1000)
            await until(one.begun.is_set)
            nursery.cancel_scope.cancel()


async def test_a_log_can_be_left_while_a_read_hangs_and_keeps_others_out(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: who read could not be cancelled, so a broker did not end."""
    volume = Volume()
    with trio.fail_after(10):
        async with open_log(MemoryDisk(volume), IMPATIENT) as log:
            await left(log, hanging, monkeypatch)
    assert "stays open, because a call hangs" in caplog.text
    assert volume.locked


@pytest.mark.parametrize("what", ["read", "commit"])
async def test_a_log_that_was_left_open_lets_others_in_when_its_call_is_back(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Found: its process had to end, and nobody could wait for it. Until then its lock is not free for a moment."""
    volume = Volume()
    async with open_log(MemoryDisk(volume), IMPATIENT) as log:
        if what == "read":
            await left(log, hanging, monkeypatch)
        else:
            monkeypatch.setattr(log._store, "carry_out", hanging)
            log.append_nowait([publish(1)])
            await until(hanging.begun.is_set)
    assert log.calls
    closed = log._store._disk.close

    def close() -> None:
        assert hanging.let_go.is_set()
        closed()

    monkeypatch.setattr(log._store._disk, "close", close)
    with pytest.raises(StoreClosed):
        await log.in_thread(list)
    hanging.let_go.set()
    with trio.fail_after(PATIENCE_S):
        await log.calls.wait_idle()
    assert not volume.locked
    async with open_log(MemoryDisk(volume), SMALL):
        pass


async def test_closing_waits_for_who_needs_its_lock(caplog: pytest.LogCaptureFixture) -> None:
    volume, release = Volume(), trio.Event()

    async def hold(log: Log) -> None:
        with log.calls.held():
            await release.wait()
            assert await log.in_thread(lambda: volume.locked)

    async with trio.open_nursery() as nursery, open_log(MemoryDisk(volume), SMALL) as log:
        nursery.start_soon(hold, log)
        await wait_all_tasks_blocked()
        log.on_commit = release.set
        log.append_nowait([publish(1)], hurry=False)  # It is committed by who closes.
    assert not volume.locked
    assert "stays open" not in caplog.text


async def test_a_read_that_was_left_and_came_back_leaves_nothing_open(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    volume = Volume()
    async with open_log(MemoryDisk(volume), SMALL) as log:
        await left(log, hanging, monkeypatch)
        hanging.let_go.set()
        assert [one.position for one in await log.read(1, 1000)] == [1], "after that one"
    assert not caplog.text
    assert not volume.locked
