"""The thread that commits run in: it comes back with what the call did, or is left alone with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from durable.log.writer_thread import WriterThread


@pytest.fixture
def writer() -> Iterator[WriterThread]:
    writer = WriterThread()
    yield writer
    writer.close()


async def test_results_and_errors_come_back_in_the_thread_that_asked(writer: WriterThread) -> None:
    idents = set()
    for number in range(50):
        assert await writer(lambda n: n + 1, number) == number + 1
        idents.add(await writer(threading.get_ident))
        with pytest.raises(ZeroDivisionError):
            await writer(divmod, number, 0)
    assert len(idents) == 1
    assert threading.get_ident() not in idents


async def test_others_run_meanwhile(writer: WriterThread) -> None:
    let_go = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer, let_go.wait)
        await trio.testing.wait_all_tasks_blocked()
        let_go.set()


async def test_a_call_that_is_abandoned_goes_on_and_takes_the_thread_with_it() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def hang() -> None:
        let_go.wait()
        ended.set()

    writer = WriterThread()
    with trio.move_on_after(0.01) as scope:
        await writer(hang)
    assert scope.cancelled_caught
    writer.close()
    done = writer._done
    os.fstat(done)
    let_go.set()
    assert await trio.to_thread.run_sync(ended.wait, 10)
    with trio.fail_after(10), pytest.raises(OSError, match="Bad file descriptor"):
        while True:  # Closed by the thread, after the last time it needed it.
            os.fstat(done)
            await trio.sleep(0.001)
