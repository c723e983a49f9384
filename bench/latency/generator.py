"""The load generator: sends each request when it is due, without waiting for the replies to earlier ones."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.loops import Loop
from bench.systems.system import Received, Requester

from .samples import Samples
from .schedule import NS, Schedule

Clock = Callable[[], int]
START_S = 0.02
LATE_S_MAX = 5.0
"""The generator stops sending once the last request of the schedule is overdue by so much."""
QUIET_S_MAX, DRAIN_S_MAX = 5.0, 10.0
"""Once all requests are sent: the longest wait without any reply, and the longest wait for all replies."""
TURN = 16
"""Requests that each connection sends before replies are received: a generator that is behind its schedule must not
receive replies late, too.
"""
DRAIN_POLL_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    schedule: Schedule
    samples: Samples
    connections: int
    end_ns: int

    @property
    def sent_per_s(self) -> float:
        last_ns = self.samples.sent_ns[self.samples.sent - 1] - self.schedule.start_ns
        return (self.samples.sent - 1) / last_ns * NS

    @property
    def kept(self) -> float:
        """The share of the schedule that was kept: the smaller of the share of its rate and the share of its requests.

        Both are needed: a generator that was blocked until its end has sent few requests, each of them at the right
        rate.
        """
        return min(
            self.sent_per_s / self.schedule.rate_per_s, self.samples.sent / self.schedule.count
        )


@asynccontextmanager
async def connected(
    samples: Samples, connections: int, connect: Callable[[int, Received], Requester],
    clock: Clock = time.perf_counter_ns,
) -> AsyncGenerator[list[Requester]]:  # fmt: skip
    """Set up `connections` requesters whose replies go to `samples`; they are torn down at the end of the block.

    Args:
        connect: makes the requester of a number, with the function to call with received payloads.
    """

    async def replied(payloads: Sequence[bytes]) -> None:
        samples.replied(payloads, clock())

    async with AsyncExitStack() as stack:
        requesters = []
        for number in range(connections):
            requester = connect(number, replied)
            await requester.setup()
            stack.push_async_callback(requester.teardown)
            requesters.append(requester)
        yield requesters


async def generate(
    rate_per_s: float, loop: Loop, requesters: Sequence[Requester], samples: Samples,
    clock: Clock = time.perf_counter_ns,
) -> Run:  # fmt: skip
    """Send each request when it is due, over the requesters in turn, and wait for the replies.

    A generator that is more than LATE_S_MAX late stops sending: the run then has fewer samples, which `Run.kept` shows.
    """
    schedule = Schedule(clock() + int(START_S * NS), rate_per_s, samples.count)
    sent_ns, payload, turns = samples.sent_ns, samples.payload, len(requesters)
    turn = TURN * turns
    last_ns = schedule.due_ns(samples.count) + int(LATE_S_MAX * NS)
    gc.collect()
    gc.disable()
    try:
        while samples.sent < samples.count and clock() < last_ns:
            due = min(schedule.due_count(clock()), samples.sent + turn)
            for number in range(samples.sent, due):
                sent_ns[number] = clock()
                samples.sent += 1
                await requesters[number % turns].request(payload(number))
            if samples.sent < samples.count:
                await loop.until(schedule.due_ns(samples.sent))
        await drain(loop, samples, clock)
    finally:
        gc.enable()
    return Run(schedule=schedule, samples=samples, connections=turns, end_ns=clock())


async def drain(loop: Loop, samples: Samples, clock: Clock) -> None:
    """Wait until all replies are here, or none has come for QUIET_S_MAX, or DRAIN_S_MAX have passed."""
    began_ns = quiet_ns = clock()
    before = samples.replies
    while samples.lost:
        await loop.until(clock() + DRAIN_POLL_NS)
        now_ns = clock()
        if samples.replies > before:
            before, quiet_ns = samples.replies, now_ns
        if now_ns - quiet_ns > QUIET_S_MAX * NS or now_ns - began_ns > DRAIN_S_MAX * NS:
            return
