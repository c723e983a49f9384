"""The three loops behind their one door: due times, descriptors, and clients that cannot await."""

from __future__ import annotations

import os
import time

import pytest

from bench.loops import LOOPS, Loop, make_loop
from bench.loops.loop import drive

WAIT_NS = 3_000_000


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    return make_loop(request.param)


def test_it_waits_until_then_and_not_for_what_has_passed(loop: Loop) -> None:
    async def main() -> int:
        due_ns = time.perf_counter_ns() + WAIT_NS
        await loop.until(due_ns)
        late_ns = time.perf_counter_ns() - due_ns
        await loop.until(due_ns)
        return late_ns

    assert loop.run(main) >= 0


def test_what_arrives_meanwhile_is_received(loop: Loop) -> None:
    ours, theirs = os.pipe()
    received: list[bytes] = []

    async def main() -> None:
        loop.watch(ours, lambda: received.append(os.read(ours, 10)))
        for data in (b"one", b"two"):
            os.write(theirs, data)
            while not received or received[-1] != data:
                await loop.until(time.perf_counter_ns() + WAIT_NS)

    loop.run(main)
    assert received == [b"one", b"two"]
    os.close(theirs)


def test_a_step_that_waits_cannot_be_driven() -> None:
    import asyncio

    with pytest.raises(RuntimeError, match="must not wait"):
        drive(asyncio.sleep(0))
