"""The load: sends what is due, and never waits for a reply before the next is due."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.loops import Loop
from bench.systems.system import Received, Requester

from .samples import Samples
from .schedule import NS, Schedule

Clock = Callable[[], int]
START_S = 0.02
DRAIN_S_MAX = 5.0
"""How long the last replies may take, once nothing is sent any more."""
TURN = 16
"""Requests sent before replies are looked for: a load that is late must not take them late, too."""
DRAIN_POLL_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked for. The first `warm_count` requests are not counted."""

    rate_per_s: float
    count: int
    size_bytes: int
    warm_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    schedule: Schedule
    samples: Samples
    end_ns: int


async def generate(
    load: Load, loop: Loop, requesters: Sequence[Requester], samples: Samples,
    clock: Clock = time.perf_counter_ns,
) -> Run:  # fmt: skip
    """Send them, in turn over the requesters, and wait for the replies."""
    schedule = Schedule(clock() + int(START_S * NS), load.rate_per_s, load.count)
    sent_ns, payload, turns = samples.sent_ns, samples.payload, len(requesters)
    number = 0
    gc.collect()
    gc.disable()
    try:
        while number < load.count:
            due = min(schedule.due_count(clock()), number + TURN)
            while number < due:
                sent_ns[number] = clock()
                await requesters[number % turns].request(payload(number))
                number += 1
            if number < load.count:
                await loop.until(schedule.due_ns(number))
        await drain(loop, samples, clock)
    finally:
        gc.enable()
    return Run(schedule=schedule, samples=samples, end_ns=clock())


async def drain(loop: Loop, samples: Samples, clock: Clock) -> None:
    """Until every reply is there, or none has come for DRAIN_S_MAX."""
    before, quiet_ns = samples.replies, clock()
    while samples.lost:
        await loop.until(clock() + DRAIN_POLL_NS)
        if samples.replies > before:
            before, quiet_ns = samples.replies, clock()
        elif clock() - quiet_ns > DRAIN_S_MAX * NS:
            return


async def measure(
    load: Load, loop: Loop, connections: int, connect: Callable[[int, Received], Requester],
    rest: bytes, clock: Clock = time.perf_counter_ns,
) -> Run:  # fmt: skip
    """Connect, run the load, disconnect. `connect` makes the requester of that number."""
    samples = Samples(load.count, rest)

    async def replied(payloads: Sequence[bytes]) -> None:
        samples.replied(payloads, clock())

    async with AsyncExitStack() as stack:
        requesters = []
        for number in range(connections):
            requester = connect(number, replied)
            await requester.setup()
            stack.push_async_callback(requester.teardown)
            requesters.append(requester)
        return await generate(load, loop, requesters, samples, clock)
