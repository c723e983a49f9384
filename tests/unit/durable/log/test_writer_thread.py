"""The thread that commits run in: it comes back with what the call did, or is left alone with it."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
import trio.testing

from durable.log.kernel_sync import kernel_sync
from durable.log.writer_thread import BorrowedThreads, WriterThread
from mesh.spinning import Spinner
from mesh.yielding import Yielder
from tests.eventfds import Eventfds
from tests.waiting import until


@pytest.fixture
def writer() -> Iterator[WriterThread]:
    writer = WriterThread(Yielder(), Spinner(select.poll()))
    yield writer
    writer.close()


def nothing() -> None: ...


async def run(writer: WriterThread, call: Callable[[], object]) -> None:
    writer.start(call)
    await writer.finish()


async def test_calls_run_over_there_and_their_errors_come_back(writer: WriterThread) -> None:
    idents: set[int] = set()
    numbers: list[int] = []
    for number in range(50):
        await run(writer, partial(numbers.append, number))
        await run(writer, lambda: idents.add(threading.get_ident()))
        with pytest.raises(ZeroDivisionError):
            await run(writer, partial(divmod, number, 0))
    assert numbers == [*range(50)]
    assert len(idents) == 1
    assert threading.get_ident() not in idents


async def test_a_call_that_ended_before_anybody_waits_for_it(writer: WriterThread) -> None:
    ended = threading.Event()
    writer.start(ended.set)
    assert await trio.to_thread.run_sync(ended.wait, 10)
    await writer.finish()


@pytest.mark.parametrize("borrowed", [False, True])
async def test_who_waits_may_come_before_the_call(writer: WriterThread, borrowed: bool) -> None:
    used = BorrowedThreads(trio.to_thread.run_sync) if borrowed else writer
    got: list[str] = []

    async def wait() -> None:
        for _ in range(3):
            await used.finish()
            got.append("finished")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for count in range(3):
                await trio.testing.wait_all_tasks_blocked()
                assert got == ["finished"] * count
                used.start(nothing)
                with pytest.raises(AssertionError, match="one call"):
                    used.start(nothing)
                await until(lambda: len(got) != count)


async def test_others_run_meanwhile(writer: WriterThread) -> None:
    let_go = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, writer, let_go.wait)
        await trio.testing.wait_all_tasks_blocked()
        let_go.set()


async def test_who_looks_at_sockets_sees_that_a_call_is_done() -> None:
    """Found: a program with a broker of its own looked for a confirm and not for the commit."""
    sockets = select.poll()
    writer = WriterThread(Yielder(), Spinner(sockets))
    writer.start(nothing)
    assert await trio.to_thread.run_sync(sockets.poll, 10_000) == [(writer._done, select.POLLIN)]
    await writer.finish()
    assert sockets.poll(0) == []
    writer.close()
    with pytest.raises(KeyError):
        sockets.unregister(writer._done)


async def test_a_call_that_is_abandoned_goes_on_and_takes_the_thread_with_it() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def hang() -> None:
        let_go.wait()
        ended.set()

    writer = WriterThread(Yielder(), Spinner(select.poll()))
    with trio.move_on_after(0.01) as scope:
        await run(writer, hang)
    assert scope.cancelled_caught
    writer.close()
    done = writer._done
    os.fstat(done)
    let_go.set()
    assert await trio.to_thread.run_sync(ended.wait, 10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        # Closed by the thread, after the last time it needed it.
        await until(lambda: not os.fstat(done))


def test_where_no_thread_can_be_started_nothing_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    eventfds = Eventfds(monkeypatch)
    for syncer in None, kernel_sync():
        with pytest.raises(RuntimeError, match="thread"):
            WriterThread(Yielder(), Spinner(select.poll()), syncer)
    assert (eventfds.made, eventfds.open) == (2, set())
