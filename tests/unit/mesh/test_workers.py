"""The tasks that run handlers: one for all that never wait, one for each that does."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio

from mesh.errors import ServiceError
from mesh.protocol.dispatch import Dispatcher, Endpoint, Job
from mesh.protocol.frame import Kind
from mesh.protocol.request import REPLY_PREFIX
from mesh.protocol.values import decode_values
from mesh.service import Request
from mesh.workers import Workers
from tests.machines import make_link, take_records

COUNT = 64
TURNS_MAX = 10
"""Of the scheduler, until 64 handlers that wait have begun: 1, 2, 4 ... workers a turn, and some."""


class Bench:
    """Workers of a service with one handler, and what its callers were told."""

    def __init__(
        self,
        nursery: trio.Nursery,
        handler: Callable[[Request], Awaitable[bytes]],
        concurrency: int,
    ) -> None:
        self.link = make_link()
        self.jobs: list[Job] = []
        self.workers = Workers(nursery, {"": handler}, {}, answered=lambda *, alone: None)
        self.workers.dispatcher = self.dispatcher = Dispatcher(
            "shop", {"": Endpoint()}, {}, concurrency=concurrency, queue_max=1000,
            queue_bytes_max=1000, start=self.workers.start, request_flush=lambda link: None,
        )  # fmt: skip

    def offer(self, payload: bytes = b"", deadline_s: float | None = None) -> Job:
        job = Job(self.link, len(self.jobs) + 1, "", payload, deadline_s)
        self.jobs.append(job)
        self.dispatcher.offer(job, 0, trio.current_time())
        return job

    async def turns(self, count: int = TURNS_MAX) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    def replied(self) -> list[int]:
        """Numbers of the jobs that have had a reply, in the order of the replies."""
        told = take_records(self.link)
        assert {kind for kind, _, _ in told} <= {Kind.REPLY}
        return [ident for _, ident, _ in told]


@asynccontextmanager
async def serving(
    handler: Callable[[Request], Awaitable[bytes]], *, concurrency: int = COUNT
) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, handler, concurrency)
        nursery.cancel_scope.cancel()


async def test_handlers_that_never_wait_share_a_task() -> None:
    tasks = []

    async def handle(request: Request) -> bytes:
        tasks.append(trio.lowlevel.current_task())
        return b""

    async with serving(handle) as bench:
        for _ in range(COUNT):
            bench.offer()
        await bench.turns()
        assert bench.replied() == [*range(1, COUNT + 1)]
        assert len({*tasks}) == 1
        bench.offer()
        await bench.turns()
        assert len(tasks) == COUNT + 1
        assert len({*tasks}) == 1, "it was kept"


async def test_a_handler_that_waits_holds_up_nobody() -> None:
    free = trio.Event()

    async def handle(request: Request) -> bytes:
        if request.payload:
            await free.wait()
        return b""

    async with serving(handle) as bench:
        for payload in (b"", b"slow", b"", b"", b"slow", b""):
            bench.offer(payload)
        await bench.turns()
        assert bench.replied() == [1, 3, 4, 6]
        bench.offer()
        await bench.turns()
        assert bench.replied() == [7]
        free.set()
        await bench.turns()
        assert sorted(bench.replied()) == [2, 5]


async def test_handlers_that_all_wait_begin_within_a_few_turns() -> None:
    begun = 0

    async def handle(request: Request) -> bytes:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()
        return b""

    async with serving(handle) as bench:
        for _ in range(2 * COUNT):
            bench.offer()
        await bench.turns()
        assert begun == COUNT == bench.dispatcher.running, "as many as its concurrency"


async def test_others_have_their_turn_between_jobs_that_come_one_out_of_the_other() -> None:
    """What an end makes ready is run in another turn, however long the queue."""
    done = 0

    async def handle(request: Request) -> bytes:
        nonlocal done
        done += 1
        return b""

    async with serving(handle, concurrency=2) as bench:
        for _ in range(COUNT):
            bench.offer()
        seen = []
        while done < COUNT:
            seen.append(done)
            await bench.turns(1)
        assert all(later - one <= 4 for one, later in pairwise(seen))


async def test_each_handler_has_the_deadline_of_its_own_request() -> None:
    deadlines = []

    async def handle(request: Request) -> bytes:
        deadlines.append(trio.current_effective_deadline())
        return b""

    async with serving(handle) as bench:
        now_s = trio.current_time()
        given = [now_s + 100, None, now_s + 50, now_s + 50, None, now_s + 200]
        for deadline_s in given:
            bench.offer(deadline_s=deadline_s)
        await bench.turns()
        assert deadlines == [math.inf if one is None else one for one in given]


async def test_what_is_cancelled_before_it_began_takes_nothing_with_it() -> None:
    async def handle(request: Request) -> bytes:
        await trio.lowlevel.checkpoint()
        return b""

    async with serving(handle) as bench:
        for _ in range(6):
            bench.offer()
        assert bench.dispatcher.cancel_request(bench.link, 3)
        await bench.turns()
        assert sorted(bench.replied()) == [1, 2, 4, 5, 6]
        assert bench.dispatcher.statistics().running == 0


async def test_what_a_handler_catches_reaches_it_also_after_it_has_waited() -> None:
    """Its steps are ours to forward: results, errors and the cancellation of its own scopes."""

    async def handle(request: Request) -> bytes:
        with trio.move_on_after(0):
            await trio.sleep_forever()
        found = await trio.to_thread.run_sync(lambda: b"found")
        try:
            await trio.to_thread.run_sync(int, "x")
        except ValueError:
            return found + b" and caught"
        return b"missed"

    async with serving(handle) as bench:
        bench.offer()
        with trio.fail_after(10):
            while bench.dispatcher.running:
                await bench.turns(1)
        ((kind, _, body),) = take_records(bench.link)
        assert kind == Kind.REPLY
        assert body.endswith(b"found and caught")


@pytest.mark.parametrize(
    ("code", "told"),
    [("no_such_endpoint", "failed: no_such_endpoint: no"), ("not_allowed", "failed: not_allowed: no"),
     ("sold_out", "sold_out: no")],
)  # fmt: skip
async def test_a_handler_that_ran_never_says_that_none_did(code: str, told: str) -> None:
    """Found: what a member it asked itself had refused it with went out as the word of this one."""

    async def handler(request: Request) -> bytes:
        raise ServiceError(code, "no")

    async with serving(handler) as bench:
        bench.offer()
        await bench.turns()
        ((kind, _, body),) = take_records(bench.link)
    assert kind == Kind.ERROR
    error = ServiceError(*decode_values(body[REPLY_PREFIX.size :], "ERROR", (str, str)))
    assert str(error) == told
    assert error.maybe_executed
